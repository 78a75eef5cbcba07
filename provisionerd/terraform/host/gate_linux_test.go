package host

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// noteProcess records a process as the sandbox does.
func noteProcess(t *testing.T, pid int) string {
	t.Helper()
	p, err := sandbox.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	return noteOf(t, p)
}

func noteOf(t *testing.T, p sandbox.Process) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestGate connects to gates from processes that belong to a job and from others.
func TestGate(t *testing.T) {
	t.Parallel()
	stranger := exec.Command("sleep", "600")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait() // it was killed
	})
	us, err := sandbox.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	recycled := us
	recycled.Start--
	for name, c := range map[string]struct {
		uid   int
		files []string
		want  string // "": admitted
	}{
		"ours":              {files: []string{noteProcess(t, os.Getpid())}},
		"below ours":        {files: []string{noteProcess(t, os.Getppid())}},
		"the second file":   {files: []string{filepath.Join(t.TempDir(), "none"), noteProcess(t, os.Getpid())}},
		"another's":         {files: []string{noteProcess(t, stranger.Process.Pid)}, want: "does not belong to the job"},
		"a recycled number": {files: []string{noteOf(t, recycled)}, want: "does not belong to the job"},
		"nothing runs":      {files: []string{filepath.Join(t.TempDir(), "none")}, want: "does not belong to the job"},
		"another account":   {uid: 65534, files: []string{noteProcess(t, os.Getpid())}, want: "has the account"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "cm") // short, for a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, "s")
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			client, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			conn, err := listener.AcceptUnix()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			err = admitJob(c.uid, c.files)(conn)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestGateHandsOver follows a connection through a gate to a worker's listener, after one that was refused.
func TestGateHandsOver(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "cm") // short, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ours, theirs, err := connPair()
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := net.FileConn(theirs)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	worker := receivedConns{inherited.(*net.UnixConn)}
	refuse := true
	admit := func(*net.UnixConn) error {
		if refuse {
			refuse = false
			return errors.New("not you")
		}
		return nil
	}
	path := filepath.Join(dir, "s")
	g, err := openGate(path, 0, 0, admit, func(c *net.UnixConn) error { return passConn(ours, c) }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	first, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(first); len(text) > 0 || err != nil {
		t.Errorf("a refused connection: %q, %v", text, err)
	}
	second, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := worker.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if text, err := io.ReadAll(second); string(text) != "hello" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	g.close()
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("a closed gate takes connections")
	}
	ours.Close()
	if _, err := worker.Accept(); !errors.Is(err, io.EOF) {
		t.Errorf("the worker's listener: %v", err)
	}
}

// TestGateAmidSignals asks whether a living process has ended while signals interrupt the asking thread, as the Go runtime's own do when it
// collects garbage. Each wrong answer refuses a job's connection to its provider worker.
func TestGateAmidSignals(t *testing.T) {
	t.Parallel()
	handle, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(handle)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, over := unix.Gettid(), make(chan struct{})
	var interrupting sync.WaitGroup
	interrupting.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				if err := unix.Tgkill(os.Getpid(), thread, unix.SIGURG); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	defer interrupting.Wait()
	defer close(over)
	for n := range 600_000 {
		if ended(handle) {
			t.Fatalf("a living process was taken for one that has ended, at question %d", n)
		}
	}
}
