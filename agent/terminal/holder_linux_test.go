package terminal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// viewer is a viewer of a terminal that collects the output it receives.
type viewer struct {
	t    *testing.T
	conn net.Conn

	mu      sync.Mutex
	changed *sync.Cond
	shown   []byte
	end     *ptywire.End
	closed  bool
}

func holder(t *testing.T, opts terminal.Options) *terminal.Holder {
	t.Helper()
	h := terminal.New(opts)
	t.Cleanup(func() { h.Close() })
	return h
}

// connect gives the holder one end of a connection.
func connect(t *testing.T, h *terminal.Holder) net.Conn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) // its buffers are small
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h.Go(theirs)
	t.Cleanup(func() { ours.Close() })
	return ours
}

func start(id uuid.UUID, command string) terminal.Start {
	return terminal.Start{
		Request: ptywire.Request{ID: id, Size: ptywire.Size{Height: 30, Width: 100}},
		Path:    "/bin/sh", Args: []string{"sh", "-c", command}, Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm"}, Directory: "/",
	}
}

func look(t *testing.T, h *terminal.Holder, s terminal.Start) *viewer {
	t.Helper()
	v := &viewer{t: t, conn: connect(t, h)}
	v.changed = sync.NewCond(&v.mu)
	if err := ptywire.WriteJSON(v.conn, ptywire.Open, s); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			kind, payload, err := ptywire.Read(v.conn)
			v.mu.Lock()
			switch {
			case err != nil:
				v.closed = true
			case kind == ptywire.Output:
				v.shown = append(v.shown, payload...)
			case kind == ptywire.Exit:
				v.end = &ptywire.End{}
				if err := json.Unmarshal(payload, v.end); err != nil {
					t.Errorf("exit frame: %v", err)
				}
			}
			v.changed.Broadcast()
			v.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { v.conn.Close(); <-done })
	return v
}

// until blocks until cond is true for the collected output.
func (v *viewer) until(what string, cond func() bool) {
	v.t.Helper()
	timer := time.AfterFunc(time.Minute, func() { v.conn.Close() })
	defer timer.Stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	for !cond() {
		if v.closed {
			v.t.Fatalf("%s: the connection ended; shown: %.2000q, end %+v", what, v.shown, v.end)
		}
		v.changed.Wait()
	}
}

func (v *viewer) sees(text string) {
	v.t.Helper()
	v.until("see "+text, func() bool { return bytes.Contains(v.shown, []byte(text)) })
}

func (v *viewer) types(text string) {
	v.t.Helper()
	if err := (ptywire.Message{Data: text}).Forward(v.conn); err != nil {
		v.t.Fatal(err)
	}
}

func (v *viewer) ends(code int, reason string) {
	v.t.Helper()
	v.until("the end", func() bool { return v.end != nil })
	if v.end.Code != code || !strings.Contains(v.end.Reason, reason) {
		v.t.Errorf("end: %+v, want code %d and %q", v.end, code, reason)
	}
}

func TestSameShellComesBack(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	s := start(uuid.New(), "stty -echo; x=first; echo ready; while read line; do eval \"$line\"; done")
	s.Banner = []byte("welcome\r\n")
	one := look(t, h, s)
	one.sees("welcome\r\nready")
	one.types("x=second; echo set\n")
	one.sees("set")
	one.conn.Close()

	two := look(t, h, s)
	two.sees("set") // printed before the viewer connected
	two.types("echo x is $x; stty size\n")
	two.sees("x is second")
	two.sees("30 100")

	three := look(t, h, s) // both viewers are connected
	three.types("echo to everyone\n")
	two.sees("to everyone")
	three.sees("to everyone")
	if err := ptywire.WriteJSON(three.conn, ptywire.Resize, ptywire.Size{Height: 40, Width: 120}); err != nil {
		t.Fatal(err)
	}
	three.types("stty size\n")
	two.sees("40 120")
	three.types("exit 7\n")
	two.ends(7, "")
	three.ends(7, "")

	again := look(t, h, s) // a new shell
	again.sees("ready")
	again.mu.Lock()
	defer again.mu.Unlock()
	if bytes.Contains(again.shown, []byte("everyone")) {
		t.Error("the new shell shows what the old one printed")
	}
}

// TestScrollbackIsBounded checks that a shell without viewers keeps printing, and the holder keeps its latest output.
func TestScrollbackIsBounded(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	dir := t.TempDir()
	s := start(uuid.New(), "echo begin; read x <"+dir+"/go; seq 1 200000; echo done; : >"+dir+"/said; read x <"+dir+"/go")
	mkfifo(t, dir+"/go")
	mkfifo(t, dir+"/said")
	v := look(t, h, s)
	v.sees("begin")
	v.conn.Close()
	write(t, dir+"/go")
	read(t, dir+"/said")
	later := look(t, h, s)
	later.sees("200000\r\ndone")
	later.mu.Lock()
	shown := string(later.shown)
	later.mu.Unlock()
	// Output that was still passing through the terminal follows the kept output.
	if len(shown) > 2*terminal.Scrollback || len(shown) < terminal.Scrollback/2 {
		t.Errorf("%d bytes are shown of 1.3 MB, want about %d", len(shown), terminal.Scrollback)
	}
	first, _, _ := strings.Cut(shown, "\r\n")
	var n int
	if _, err := fmt.Sscanf(first, "%d", &n); err != nil || n < 1000 || fmt.Sprint(n) != first {
		t.Errorf("what is kept begins with %q, want a whole line", first)
	}
	write(t, dir+"/go")
	later.ends(0, "")
}

// TestNothingIsLost checks that a viewer that reads receives all output, however much it is.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	v := look(t, h, start(uuid.New(), "stty -onlcr; seq 1 300000"))
	v.ends(0, "")
	var want bytes.Buffer
	for i := range 300000 {
		fmt.Fprintf(&want, "%d\n", i+1)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !bytes.Equal(v.shown, want.Bytes()) {
		t.Errorf("%d bytes were shown, want %d", len(v.shown), want.Len())
	}
}

// TestStuckViewer: a viewer that reads nothing blocks the shell for a while, and is then dropped; the others continue.
func TestStuckViewer(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{Stall: time.Second})
	s := start(uuid.New(), "echo begin; read x; seq 1 200000; echo done; read x")
	v := look(t, h, s)
	v.sees("begin")
	stuck := connect(t, h)
	if err := ptywire.WriteJSON(stuck, ptywire.Open, s); err != nil {
		t.Fatal(err)
	}
	v.types("go\n")
	v.sees("200000\r\ndone")
}

func TestEnds(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	look(t, h, start(uuid.New(), "kill -9 $$")).ends(137, "killed")
	none := start(uuid.New(), "")
	none.Path = "/does/not/exist"
	look(t, h, none).ends(127, "no such file")
	// A background job that keeps the terminal open does not keep the terminal alive.
	look(t, h, start(uuid.New(), "trap '' HUP; sleep 5 & exit 3")).ends(3, "")
}

func TestAbandoned(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{Abandoned: 20 * time.Millisecond})
	dir := t.TempDir()
	mkfifo(t, dir+"/said")
	v := look(t, h, start(uuid.New(), "trap 'exec echo over >"+dir+"/said' HUP; echo begin; while :; do sleep 0.01; done"))
	v.sees("begin")
	v.conn.Close()
	read(t, dir+"/said")
}

// TestTooMany: above the bound, the terminal that has been without viewers the longest gives way; terminals with viewers do not.
func TestTooMany(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	var viewers []*viewer
	for range 64 {
		v := look(t, h, start(uuid.New(), "echo begin; read x"))
		v.sees("begin")
		viewers = append(viewers, v)
	}
	look(t, h, start(uuid.New(), "echo no")).ends(127, "too many terminals")
	viewers[5].conn.Close()
	// The holder notices it some time later: until then it refuses.
	for {
		more := look(t, h, start(uuid.New(), "echo yes; read x"))
		more.until("an answer", func() bool { return more.end != nil || bytes.Contains(more.shown, []byte("yes")) })
		more.mu.Lock()
		refused := more.end != nil
		more.mu.Unlock()
		if !refused {
			break
		}
	}
	if got := h.Terminals(); got != 64 {
		t.Errorf("%d terminals, want 64", got)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	v := look(t, h, start(uuid.New(), "echo begin; read x"))
	v.sees("begin")
	silent := connect(t, h)
	h.Close()
	v.ends(129, "stopping")
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that never asked for anything is open")
	}
	late := connect(t, h)
	if _, err := late.Read(make([]byte, 1)); err == nil {
		t.Error("a closed holder serves")
	}
}

// TestNonsense checks that invalid data ends the connection and nothing else.
func TestNonsense(t *testing.T) {
	t.Parallel()
	h := holder(t, terminal.Options{})
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "O\x00\x00\x00\x02{}", "O\x00\x00\x00\x01x", "I\x00\x00\x00\x00", "O\xff\xff\xff\xff"} {
		conn := connect(t, h)
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q: the connection is answered", text)
		}
	}
	v := look(t, h, start(uuid.New(), "echo fine; read x"))
	v.sees("fine")
	if _, err := v.conn.Write([]byte("R\x00\x00\x00\x02{]Z\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { v.conn.Close() })
	v.mu.Lock()
	for !v.closed {
		v.changed.Wait()
	}
	v.mu.Unlock()
	if !timer.Stop() {
		t.Error("a connection that sent nonsense is open")
	}
}
