package sshd_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pkg/sftp"
	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/sshd"
	"github.com/codermesh/codermesh/v2/internal/winetest"
	"github.com/codermesh/codermesh/v2/sshmux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns a client of a new server whose shell is cmd.exe.
func dial(t *testing.T) (client *gossh.Client, home string) {
	t.Helper()
	user := proc.CurrentUser()
	user.Home, user.Shell = winetest.TempDir(t), winetest.Shell()
	env := proc.NewEnv(os.Environ())
	user.SetAccount(env)
	server, err := sshd.New(sshd.Options{Environment: func() sshd.Environment {
		return sshd.Environment{User: user, Directory: user.Home, Env: env.List()}
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	mux := sshmux.Client(raw, sshmux.Options{})
	t.Cleanup(func() {
		mux.Close()
		mux.Wait()
		server.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return mux, user.Home
}

func session(t *testing.T, client *gossh.Client) *gossh.Session {
	t.Helper()
	s, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestCommands(t *testing.T) {
	t.Parallel()
	client, home := dial(t)
	for name, c := range map[string]struct {
		command, input, out, errs string
		status                    int
	}{
		"output":      {command: "echo hello", out: "hello\r\n"},
		"status":      {command: "exit 3", status: 3},
		"stderr":      {command: "echo bad>&2", errs: "bad\r\n"},
		"folder":      {command: "cd", out: home + "\r\n"},
		"environment": {command: "echo %UserProfile% %given%", out: home + " value\r\n"},
		"quotes":      {command: `if "a b"=="a b" (echo "same") else echo other`, out: "\"same\"\r\n"},
		"input":       {command: "set /p typed=&& set typed", input: "words\r\n", out: "typed=words\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, client)
			var out, errs bytes.Buffer
			s.Stdout, s.Stderr, s.Stdin = &out, &errs, strings.NewReader(c.input)
			if err := s.Setenv("GIVEN", "value"); err != nil {
				t.Fatal(err)
			}
			err := s.Run(c.command)
			status := 0
			if exit := (*gossh.ExitError)(nil); errors.As(err, &exit) {
				status = exit.ExitStatus()
			} else if err != nil {
				t.Fatal(err)
			}
			if out.String() != c.out || errs.String() != c.errs || status != c.status {
				t.Errorf("%s: got %q, %q, %d; want %q, %q, %d", c.command, out.String(), errs.String(), status, c.out, c.errs, c.status)
			}
		})
	}
}

// TestKill ends a program with what it has started: the client learns the status at once, and nothing holds the output open.
func TestKill(t *testing.T) {
	t.Parallel()
	client, _ := dial(t)
	s := session(t, client)
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo ready && cmd /c pause"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(gossh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	exit := (*gossh.ExitError)(nil)
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 143 {
		t.Errorf("a program that was ended: %v, want status 143", err)
	}
}

// TestFiles copies files under the names that clients have for paths with drives.
func TestFiles(t *testing.T) {
	t.Parallel()
	client, home := dial(t)
	files, err := sftp.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	at := "/" + filepath.ToSlash(home)
	if got, err := files.RealPath("."); err != nil || got != at {
		t.Errorf("the folder: %q, %v; want %q", got, err, at)
	}
	file, err := files.Create(at + "/up.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("contents")); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(home, "up.txt")); string(got) != "contents" || err != nil {
		t.Errorf("uploaded: %q, %v", got, err)
	}
	if err := files.Rename("up.txt", "down.txt"); err != nil {
		t.Fatal(err)
	}
	down, err := files.Open("down.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	if got, err := io.ReadAll(down); string(got) != "contents" || err != nil {
		t.Errorf("downloaded: %q, %v", got, err)
	}
}

// TestTerminal talks with a shell on a terminal.
func TestTerminal(t *testing.T) {
	t.Parallel()
	client, _ := dial(t)
	s := session(t, client)
	if err := s.RequestPty("xterm", 30, 100, gossh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "echo typed-%OS%\r"); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	for buf := make([]byte, 4096); !strings.Contains(seen.String(), "typed-Windows_NT"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("after %q: %v", seen.String(), err)
		}
		seen.Write(buf[:n])
	}
	if err := s.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "exit 5\r"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	exit := (*gossh.ExitError)(nil)
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 5 {
		t.Errorf("the shell ended with %v, want status 5", err)
	}
}
