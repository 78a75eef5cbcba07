//go:build linux

package sshd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/sshd"
)

func TestExec(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	for name, test := range map[string]struct {
		flags   []string
		command string
		stdin   string
		stdout  string
		stderr  string
		status  int
	}{
		"output":         {command: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		"status 0":       {command: "true"},
		"status 1":       {command: "false", status: 1},
		"status 42":      {command: "exit 42", status: 42},
		"status 255":     {command: "exit 255", status: 255},
		"killed":         {command: "kill -KILL $$", status: 137},
		"terminated":     {command: "kill -TERM $$", status: 143},
		"not found":      {command: "no-such-command-here 2>/dev/null", status: 127},
		"end of input":   {command: "cat; echo done", stdin: "a\nb", stdout: "a\nbdone\n"},
		"input not read": {command: "exec <&-; echo done", stdin: strings.Repeat("x", 1<<20), stdout: "done\n"},
		"directory":      {command: `[ "$PWD" = "$HOME" ] && echo same`, stdout: "same\n"},
		"workspace env":  {command: "echo $CODER", stdout: "true\n"},
		"own env":        {flags: []string{"-o", `SetEnv=FOO="a b"`}, command: `echo "$FOO"`, stdout: "a b\n"},
		"token env":      {flags: []string{"-o", "SetEnv=CODER_AGENT_TOKEN=x"}, command: `echo "[$CODER_AGENT_TOKEN]"`, stdout: "[]\n"},
		"connection env": {command: `set -- $SSH_CONNECTION; echo $# $1 $3 ${SSH_CLIENT%% *}`, stdout: "4 127.0.0.1 127.0.0.1 127.0.0.1\n"},
		"no terminal":    {command: `tty; echo "[$SSH_TTY]"`, stdout: "not a tty\n[]\n"},
		"long command":   {command: ": " + strings.Repeat("x", 100<<10) + "; echo done", stdout: "done\n"},
		"background job": {command: "sleep 60 </dev/null >/dev/null 2>&1 & kill $!; echo started", stdout: "started\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := h.ssh(t.Context(), test.flags, test.command)
			cmd.Stdin = strings.NewReader(test.stdin)
			stdout, stderr, status := run(t, cmd)
			if stdout != test.stdout || stderr != test.stderr || status != test.status {
				t.Errorf("%s: got status %d, stdout %q, stderr %q; want %d, %q, %q",
					test.command, status, stdout, stderr, test.status, test.stdout, test.stderr)
			}
		})
	}
}

func TestShellIsLoginShell(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	if err := os.WriteFile(filepath.Join(h.home, ".bash_profile"), []byte("echo profile\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := h.ssh(t.Context(), nil)
	cmd.Stdin = strings.NewReader("echo $0; exit 7\n")
	stdout, stderr, status := run(t, cmd)
	if want := "profile\n-bash\n"; stdout != want || status != 7 {
		t.Errorf("shell: got status %d, %q (stderr %q), want 7, %q", status, stdout, stderr, want)
	}
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	cmd := h.ssh(t.Context(), []string{"-tt"}, "tty; echo $TERM; echo $SSH_TTY; exit 3")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	stdout, _, status := run(t, cmd)
	lines := strings.Split(stdout, "\r\n")
	if status != 3 || len(lines) < 3 || !strings.HasPrefix(lines[0], "/dev/pts/") || lines[1] != "xterm-256color" || lines[2] != lines[0] {
		t.Errorf("got status %d, output %q; want 3 and a terminal, its type, and its name", status, stdout)
	}
}

func TestTerminalResize(t *testing.T) {
	t.Parallel()
	session := terminal(t, start(t, nil).dial(t), gossh.TerminalModes{gossh.ECHO: 0, gossh.VERASE: 8})
	stdin, out := session.stdin, session.out
	fmt.Fprintln(stdin, "stty size; stty -a | grep -o 'erase = [^;]*'; stty -a | grep -ow -- -echo")
	expect(t, out, "24 80")
	expect(t, out, "erase = ^H")
	expect(t, out, "-echo")
	// A flood comes first: only the last size takes effect, and the session must not stall.
	for i := range 2000 {
		if err := session.WindowChange(10+i%50, 100); err != nil {
			t.Fatal(err)
		}
	}
	if err := session.WindowChange(50, 132); err != nil {
		t.Fatal(err)
	}
	// Requests and data keep their order, so input typed after a resize finds the new size.
	fmt.Fprintln(stdin, "stty size; echo that is all")
	if seen := expect(t, out, "that is all"); !strings.Contains(strings.Join(seen, ""), "50 132") {
		t.Errorf("after the resize: got %q, want 50 132", seen)
	}
	fmt.Fprintln(stdin, "exit 5")
	var exit *gossh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 5 {
		t.Errorf("wait: got %v, want exit status 5", err)
	}
}

type terminalSession struct {
	*gossh.Session
	stdin io.Writer
	out   *bufio.Reader
}

// terminal starts a shell without prompt or profile on a terminal of 24 by 80.
func terminal(t testing.TB, client *gossh.Client, modes gossh.TerminalModes) terminalSession {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.RequestPty("xterm", 24, 80, modes); err != nil {
		t.Fatal(err)
	}
	stdin, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("PS1= exec bash --norc --noprofile"); err != nil {
		t.Fatal(err)
	}
	return terminalSession{session, stdin, bufio.NewReader(stdout)}
}

// expect reads lines until one contains want, and returns them.
func expect(t testing.TB, out *bufio.Reader, want string) (seen []string) {
	t.Helper()
	for {
		line, err := out.ReadString('\n')
		seen = append(seen, line)
		if strings.Contains(line, want) {
			return seen
		}
		if err != nil {
			t.Fatalf("read: %v; got %q, want %q", err, seen, want)
		}
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	for name, test := range map[string]struct {
		command string
		signal  gossh.Signal
		status  int
		death   string
	}{
		"default": {"echo ready; exec sleep 60", gossh.SIGTERM, 143, "TERM"},
		"kill":    {"echo ready; exec sleep 60", gossh.SIGKILL, 137, "KILL"},
		"trapped": {"trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done", gossh.SIGINT, 9, ""},
		"group":   {"(echo ready; exec sleep 60); echo child $?; exit 4", gossh.SIGUSR1, 138, "USR1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session, err := h.dial(t).NewSession()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := session.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Start(test.command); err != nil {
				t.Fatal(err)
			}
			expect(t, bufio.NewReader(stdout), "ready")
			if err := session.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			err = session.Wait()
			var exit *gossh.ExitError
			if !errors.As(err, &exit) || exit.ExitStatus() != test.status || exit.Signal() != test.death {
				t.Errorf("wait: got %v, want status %d and signal %q", err, test.status, test.death)
			}
		})
	}
}

// TestHangUp checks that when a client goes away, the server hangs up its terminal's jobs and its command's whole process tree.
func TestHangUp(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	for name, command := range map[string]string{
		"tree":              "sleep 3600 & echo $!; wait",
		"own group":         "set -m; sleep 3600 & echo $!; wait",
		"ignores only TERM": "trap '' TERM; sleep 3600 & echo $!; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := h.dial(t)
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := session.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Start(command); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			client.Close()
			waitGone(t, pid)
		})
	}
}

// TestReaderEndsEarly checks that OpenSSH ends when its reader does, as in "ssh dev yes | head -1": the program notices, and the rest of the command
// still runs.
func TestReaderEndsEarly(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	status := filepath.Join(t.TempDir(), "status")
	for name, test := range map[string]struct {
		flags   []string
		command string
	}{
		"program":  {command: "yes; echo $? >" + status},
		"silent":   {command: "echo y; sleep 1; exec yes"},
		"terminal": {flags: []string{"-tt", "-q"}, command: "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := h.ssh(t.Context(), test.flags, test.command)
			stdin, inErr := cmd.StdinPipe() // OpenSSH would leave once its input ends
			stdout, outErr := cmd.StdoutPipe()
			if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if strings.TrimSpace(line) != "y" || err != nil {
				t.Errorf("got %q, %v", line, err)
			}
			stdout.Close()
			_ = cmd.Wait() // its status depends on the moment
			if name != "program" {
				return
			}
			if got, err := os.ReadFile(status); string(got) != "141\n" {
				t.Errorf("the program ended with %q, %v, want 141", got, err)
			}
		})
	}
}

// waitGone blocks until a process that is not our child has ended.
func waitGone(t testing.TB, pid int) {
	t.Helper()
	fd, err := pidfdOpen(pid)
	if errors.Is(err, syscall.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := pollEnd(ctx, fd); err != nil {
		t.Fatalf("wait for process %d: %v", pid, err)
	}
}

func TestBulkIsBinaryClean(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	const size = 100 << 20
	data := make([]byte, size)
	rand.Read(data)
	want := sha256.Sum256(data)

	up := h.ssh(t.Context(), nil, "sha256sum")
	up.Stdin = bytes.NewReader(data)
	stdout, _, status := run(t, up)
	if got, _, _ := strings.Cut(stdout, " "); status != 0 || got != fmt.Sprintf("%x", want) {
		t.Errorf("upload: status %d, sum %s, want %x", status, got, want)
	}

	path := filepath.Join(h.dir, "data")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	down := h.ssh(t.Context(), nil, "cat "+path)
	down.Stdout = sum
	if err := down.Run(); err != nil {
		t.Fatal(err)
	}
	if got := [32]byte(sum.Sum(nil)); got != want {
		t.Errorf("download: sum %x, want %x", got, want)
	}

	echo := h.ssh(t.Context(), nil, "cat")
	echo.Stdin = bytes.NewReader(data)
	sum.Reset()
	echo.Stdout = sum
	if err := echo.Run(); err != nil {
		t.Fatal(err)
	}
	if got := [32]byte(sum.Sum(nil)); got != want {
		t.Errorf("both ways at once: sum %x, want %x", got, want)
	}
}

func TestMOTD(t *testing.T) {
	t.Parallel()
	var home string
	h := start(t, func(env *sshd.Environment) {
		home = env.User.Home
		env.MOTDFile = filepath.Join(home, "motd")
	})
	if err := os.WriteFile(filepath.Join(home, "motd"), []byte("hello\nworld\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := func() string {
		cmd := h.ssh(t.Context(), []string{"-tt"})
		cmd.Stdin = strings.NewReader("exit\n")
		stdout, _, _ := run(t, cmd)
		return stdout
	}
	if got := shell(); !strings.HasPrefix(got, "hello\r\nworld\r\n") {
		t.Errorf("shell: got %q, want the motd first", got)
	}
	if stdout, _, _ := run(t, h.ssh(t.Context(), nil, "true")); stdout != "" {
		t.Errorf("exec: got %q, want nothing", stdout)
	}
	if err := os.WriteFile(filepath.Join(home, ".hushlogin"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := shell(); strings.Contains(got, "world") {
		t.Errorf("hushed shell: got %q, want no motd", got)
	}
}

func TestMissingShellAndFolder(t *testing.T) {
	t.Parallel()
	gone := start(t, func(env *sshd.Environment) { env.Directory = "/no/such/folder" })
	if stdout, stderr, status := run(t, gone.ssh(t.Context(), nil, "pwd")); status != 0 || strings.TrimSpace(stdout) != gone.home {
		t.Errorf("pwd: got status %d, %q (%q), want the home folder %q", status, stdout, stderr, gone.home)
	}
	broken := start(t, func(env *sshd.Environment) { env.User.Shell = "/no/such/shell" })
	if _, stderr, status := run(t, broken.ssh(t.Context(), nil, "true")); status != 127 || !strings.Contains(stderr, "/no/such/shell") {
		t.Errorf("got status %d, %q, want 127 and the shell's name", status, stderr)
	}
}

func TestEnvironmentIsBounded(t *testing.T) {
	t.Parallel()
	session, err := start(t, nil).dial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for i := range 1000 {
		if session.Setenv("V"+strconv.Itoa(i), "x") == nil {
			accepted++
		}
	}
	if accepted != 256 {
		t.Errorf("accepted %d variables, want 256", accepted)
	}
	out, err := session.Output("env | grep -c ^V")
	if err != nil || strings.TrimSpace(string(out)) != "256" {
		t.Errorf("session has %q variables (%v), want 256", out, err)
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	server, err := sshd.New(sshd.Options{Environment: func() sshd.Environment { return sshd.Environment{} }})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}
