package terminal_test

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/winetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a viewer of the terminal id.
func open(t *testing.T, h *terminal.Holder, id uuid.UUID, dir string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	h.Go(theirs)
	start := terminal.Start{
		Request: ptywire.Request{ID: id, Size: ptywire.Size{Width: 100, Height: 30}},
		Path:    winetest.Shell(), Args: proc.LoginArgs(winetest.Shell()), Env: os.Environ(), Directory: dir,
	}
	if err := ptywire.WriteJSON(ours, ptywire.Open, start); err != nil {
		t.Fatal(err)
	}
	return ours
}

// await reads output until it has a text.
func await(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), text) {
		kind, payload, err := ptywire.Read(conn)
		if err != nil || kind != ptywire.Output {
			t.Fatalf("after %q: %c %q, %v", seen.String(), kind, payload, err)
		}
		seen.Write(payload)
	}
}

func TestTerminalComesBack(t *testing.T) {
	t.Parallel()
	dir := winetest.TempDir(t)
	h := terminal.New(terminal.Options{})
	defer h.Close()
	id := uuid.New()
	first := open(t, h, id, dir)
	if err := ptywire.Write(first, ptywire.Input, []byte("echo typed-%OS%\r")); err != nil {
		t.Fatal(err)
	}
	await(t, first, "typed-Windows_NT")
	first.Close()

	second := open(t, h, id, dir)
	await(t, second, "typed-Windows_NT")
	if err := ptywire.WriteJSON(second, ptywire.Resize, ptywire.Size{Width: 120, Height: 40}); err != nil {
		t.Fatal(err)
	}
	if err := ptywire.Write(second, ptywire.Input, []byte("exit 5\r")); err != nil {
		t.Fatal(err)
	}
	for {
		kind, payload, err := ptywire.Read(second)
		if err != nil {
			t.Fatal(err)
		}
		if kind == ptywire.Output {
			continue
		}
		var end ptywire.End
		if err := json.Unmarshal(payload, &end); err != nil || kind != ptywire.Exit || end.Code != 5 {
			t.Errorf("the end: %c %q, %v", kind, payload, err)
		}
		return
	}
}

// TestClose ends a shell that is in use.
func TestClose(t *testing.T) {
	t.Parallel()
	h := terminal.New(terminal.Options{})
	conn := open(t, h, uuid.New(), winetest.TempDir(t))
	if err := ptywire.Write(conn, ptywire.Input, []byte("echo typed-%OS%\r")); err != nil {
		t.Fatal(err)
	}
	await(t, conn, "typed-Windows_NT")
	closed := make(chan error)
	go func() { closed <- h.Close() }()
	for {
		kind, payload, err := ptywire.Read(conn)
		if err != nil {
			t.Fatal(err)
		}
		if kind == ptywire.Exit {
			if !bytes.Contains(payload, []byte("the workspace is stopping")) {
				t.Errorf("the end: %q", payload)
			}
			break
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
