package agent

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/scratch"
)

// TestSocketFolder: the next agent of a state folder gets the same temporary folder for its socket, and none remains after the last agent.
func TestSocketFolder(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	first, err := socketFolder("/state/dev-main")
	if err != nil {
		t.Fatal(err)
	}
	name := first.Path()
	// While another agent has the folder, or a stranger has planted one, the socket still gets a private folder.
	second, err := socketFolder("/state/dev-main")
	if err != nil || second.Path() == name || filepath.Dir(second.Path()) != tmp {
		t.Errorf("second agent: %+v, %v", second, err)
	}
	for _, folder := range []*scratch.Folder{first, second} {
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := os.Symlink(t.TempDir(), name); err != nil {
		t.Fatal(err)
	}
	third, err := socketFolder("/state/dev-main")
	if err != nil || third.Path() == name {
		t.Errorf("planted link: %+v, %v", third, err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(name); err != nil {
		t.Error(err)
	}
	again, err := socketFolder("/state/dev-main")
	if err != nil || again.Path() != name {
		t.Errorf("next agent: %+v, %v", again, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPrivateSocketFolder: a private socket holds its temporary folder while it is open, and then removes it.
func TestPrivateSocketFolder(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	socket, err := newPrivateSocket(filepath.Join("/state", strings.Repeat("x", maxSocketPath)), 1, slog.New(slog.DiscardHandler), func(net.Conn) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := scratch.Sweep(tmp, os.Geteuid()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(socket.path); err != nil {
		t.Errorf("socket of a living agent: %v", err)
	}
	if err := socket.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPrivateSocket: only the account can use the socket, which replaces one that a killed agent left and disappears with the agent.
func TestPrivateSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "units")
	for range 2 {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, socketName), nil, 0o644); err != nil { // what a killed agent leaves
			t.Fatal(err)
		}
		socket, err := newPrivateSocket(dir, 1, slog.New(slog.DiscardHandler), func(conn net.Conn) { _, _ = conn.Write([]byte("x")) })
		if err != nil {
			t.Fatal(err)
		}
		if socket.path != filepath.Join(dir, socketName) {
			t.Errorf("the socket is at %s", socket.path)
		}
		if info, err := os.Stat(socket.path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("socket: %v, %v", info, err)
		}
		conn, err := net.Dial("unix", socket.path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "x" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		conn.Close()
		if err := socket.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after close: %v", err)
		}
	}
}
