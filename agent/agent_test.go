//go:build linux

package agent_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/speed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testhome"
)

// TestMain gives the shells of the tests an empty home.
func TestMain(m *testing.M) { goleak.VerifyTestMain(testhome.M{M: m}) }

func newScript(text string, change func(*agentpb.Script)) *agentpb.Script {
	id, source := uuid.New(), uuid.New()
	s := &agentpb.Script{Id: id[:], LogSourceId: source[:], DisplayName: "test", Script: text, RunOnStart: true}
	if change != nil {
		change(s)
	}
	return s
}

func (w *world) ended(s *agentpb.Script, stage string) *agentpb.ScriptDoneRequest {
	return w.done[stage+string(s.GetId())]
}

const (
	starting     = agentpb.LifecycleState_LIFECYCLE_STATE_STARTING
	ready        = agentpb.LifecycleState_LIFECYCLE_STATE_READY
	startError   = agentpb.LifecycleState_LIFECYCLE_STATE_START_ERROR
	startTimeout = agentpb.LifecycleState_LIFECYCLE_STATE_START_TIMEOUT
	shuttingDown = agentpb.LifecycleState_LIFECYCLE_STATE_SHUTTING_DOWN
	off          = agentpb.LifecycleState_LIFECYCLE_STATE_OFF
)

func (w *world) expectStates(t testing.TB, want ...agentpb.LifecycleState) {
	t.Helper()
	w.until(t, "lifecycle", func() bool { return len(w.states) >= len(want) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.states); diff != "" {
		t.Errorf("lifecycle (-want +got):\n%s", diff)
	}
}

func TestStartToOff(t *testing.T) {
	t.Parallel()
	good := newScript("echo one; echo two >&2; printf three", nil)
	stop := newScript("echo bye", func(s *agentpb.Script) { s.RunOnStart, s.RunOnStop = false, true })
	w := newWorld(t, good, stop)
	end := w.run(t)
	w.expectStates(t, starting, ready)
	w.until(t, "log", func() bool { return len(w.lines[string(good.GetLogSourceId())]) == 3 })
	end()
	w.expectStates(t, starting, ready, shuttingDown, off)
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff([]string{"one", "two", "three"}, w.lines[string(good.GetLogSourceId())]); diff != "" {
		t.Errorf("start log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"bye"}, w.lines[string(stop.GetLogSourceId())]); diff != "" {
		t.Errorf("stop log (-want +got):\n%s", diff)
	}
	if w.ended(good, "start") == nil || w.ended(stop, "stop") == nil || w.ended(stop, "start") != nil {
		t.Errorf("scripts reported: %v", w.done)
	}
}

func TestFailuresOfStartScripts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script *agentpb.Script
		want   agentpb.LifecycleState
	}{
		"error":   {newScript("exit 3", nil), startError},
		"timeout": {newScript("exec sleep 3600", func(s *agentpb.Script) { s.TimeoutSeconds = 1 }), startTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.script, newScript("true", nil))
			w.run(t)
			w.expectStates(t, starting, test.want)
			w.until(t, "script's end", func() bool { return w.ended(test.script, "start") != nil })
		})
	}
}

func TestScriptsRunOncePerBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	counter := filepath.Join(w.dir, "count")
	w.manifest.Scripts = []*agentpb.Script{newScript("echo x >> "+counter, nil)}
	runs := func() int {
		data, err := os.ReadFile(counter)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(data), "x")
	}
	restart := func(want int, states ...agentpb.LifecycleState) {
		t.Helper()
		w.update(func() { w.states, w.hellos = nil, nil })
		stop := w.run(t)
		w.expectStates(t, states...)
		stop()
		if got := runs(); got != want {
			t.Errorf("the script ran %d times, want %d", got, want)
		}
	}
	restart(1, starting, ready)
	restart(1, ready)
	w.manifest.Incarnation = 2
	restart(2, starting, ready)
}

func TestSessionEnvironment(t *testing.T) {
	t.Setenv("CODER_AGENT_TOKEN", "secret")
	w := newWorld(t)
	w.run(t)
	session, err := w.dial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.Output(`pwd; for v in CODER CODER_WORKSPACE_NAME CODER_WORKSPACE_AGENT_NAME CODER_WORKSPACE_OWNER_NAME CODER_AGENT_URL CS_DISABLE_GETTING_STARTED_OVERRIDE GREETING VSCODE_PROXY_URI; do echo "$v=${!v}"; done; rest=${PATH#*:}; echo "${rest%%:*}"; echo "$CODER_WORKSPACE_ID"; env | grep -c 'secre[t]'`)
	want := w.dir + `
CODER=true
CODER_WORKSPACE_NAME=dev
CODER_WORKSPACE_AGENT_NAME=main
CODER_WORKSPACE_OWNER_NAME=ann
CODER_AGENT_URL=http://server/
CS_DISABLE_GETTING_STARTED_OVERRIDE=1
GREETING=hi dev $not_set
VSCODE_PROXY_URI=https://{{port}}.example
/extra
` + uuid.UUID(w.manifest.WorkspaceId).String() + `
0
`
	var exit *gossh.ExitError // grep finds nothing: 1
	if diff := cmp.Diff(want, string(out)); diff != "" || !errors.As(err, &exit) {
		t.Errorf("session's environment (-want +got), %v:\n%s", err, diff)
	}
}

// TestSessionSearchPath checks that sessions find programs that scripts install first, and find "coder", whatever PATH the template
// sets.
func TestSessionSearchPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manifest.Env["PATH"] = "/usr/bin:/bin"
	w.manifest.Scripts = []*agentpb.Script{newScript(`printf '#!/bin/sh\necho wrapped\n' > "$CODER_SCRIPT_BIN_DIR/git" && chmod +x "$CODER_SCRIPT_BIN_DIR/git"`, nil)}
	w.run(t)
	w.expectStates(t, starting, ready)
	session, err := w.dial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.CombinedOutput(`git; rest=${PATH#*:}; echo "$rest"`)
	if want := "wrapped\n/usr/bin:/bin:" + filepath.Dir(program) + "\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestReconnect: when the server goes away and comes back, and answers are lost, sessions continue, and every line is stored once.
func TestReconnect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fifo := filepath.Join(w.dir, "fifo")
	s := newScript("mkfifo "+fifo+"; exec 3<>"+fifo+"; for i in 1 2 3 4 5 6; do echo line $i; read x <&3; done", nil)
	w.manifest.Scripts = []*agentpb.Script{s}
	w.loseLogs = 3
	w.run(t)

	session, err := w.dial(t).NewSession()
	if err != nil {
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
	if err := session.Start("cat"); err != nil {
		t.Fatal(err)
	}
	echo := bufio.NewReader(stdout)
	source := string(s.GetLogSourceId())
	for i := range 6 {
		w.until(t, "line", func() bool { return len(w.lines[source]) > i })
		w.mu.Lock()
		before := len(w.hellos)
		w.mu.Unlock()
		w.cut()
		fmt.Fprintf(stdin, "still here %d\n", i)
		if line, err := echo.ReadString('\n'); err != nil || line != fmt.Sprintf("still here %d\n", i) {
			t.Fatalf("session after a cut: %q, %v", line, err)
		}
		if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
			t.Fatal(err)
		}
		w.until(t, "reconnect", func() bool { return len(w.hellos) > before })
	}
	w.expectStates(t, starting, ready)
	w.mu.Lock()
	defer w.mu.Unlock()
	want := []string{"line 1", "line 2", "line 3", "line 4", "line 5", "line 6"}
	if diff := cmp.Diff(want, w.lines[source]); diff != "" || w.gap != nil {
		t.Errorf("log, gap %v (-want +got):\n%s", w.gap, diff)
	}
}

func TestServerAsksToStop(t *testing.T) {
	t.Parallel()
	for name, final := range map[string]bool{"stopped": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.final = final
			stop := w.run(t)
			w.expectStates(t, starting, ready)
			w.shutdown <- "the workspace stops"
			w.expectStates(t, starting, ready, shuttingDown, off)
			stop() // it has ended on its own, and closed no more than once
			select {
			case next := <-w.next:
				if final || next != "next" {
					t.Errorf("the agent awaits another start with the token %q", next.Reveal())
				}
			default:
				if !final {
					t.Error("the agent does not await another start")
				}
			}
		})
	}
}

// TestRefusedAgentReturns checks that an agent whose token is not valid any more, because it was offline when its workspace stopped, hands on the
// token with which it can return.
func TestRefusedAgentReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.run(t)
	w.expectStates(t, starting, ready)
	w.refusal = fault.New(fault.Unauthenticated, "This agent token is not valid.")
	close(w.removed)
	if next := <-w.next; next != secret.Token("x").Offline() {
		t.Errorf("the agent returns with the token %s", next)
	}
	stop() // it has ended on its own, without an error
}

// TestAsleepDuringTheStop checks the same for an agent that was asked to stop but slept, so that it asks about the next start after the stop has ended:
// it gets no answer, or the answer that it has been removed.
func TestAsleepDuringTheStop(t *testing.T) {
	t.Parallel()
	for name, sleep := range map[string]func(*world){
		"no answer": func(w *world) { w.silent = true },
		"removed":   func(w *world) { w.late = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			sleep(w)
			stop := w.run(t)
			w.expectStates(t, starting, ready)
			w.shutdown <- "the workspace stops"
			if next := <-w.next; next != secret.Token("x").Offline() {
				t.Errorf("the agent returns with the token %s", next)
			}
			stop() // it has ended on its own, without an error
		})
	}
}

// TestEndedByItsMachine checks that an agent that its machine ends does not wait for another start.
func TestEndedByItsMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.run(t)
	w.expectStates(t, starting, ready)
	stop()
	if len(w.next) != 0 {
		t.Error("the agent awaits another start")
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	target := listen(t)
	defer target.Close()
	go func() {
		conn, err := target.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		data, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(data))
	}()
	w.until(t, "handler", func() bool { return w.tcp != nil })
	client, server := tcpPair(t)
	handle, ok := w.tcp(netip.AddrPort{}, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(target.Addr().(*net.TCPAddr).Port)))
	if !ok {
		t.Fatal("the port is refused")
	}
	go handle(server)
	_, _ = io.WriteString(client, "abc")
	_ = client.CloseWrite()
	if got, err := io.ReadAll(client); err != nil || string(got) != "ABC" {
		t.Errorf("forward: %q, %v", got, err)
	}

	w.mu.Lock()
	addr := w.ports[meshport.Speedtest].Addr().String()
	w.mu.Unlock()
	for _, direction := range []speed.Direction{speed.Down, speed.Up} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		got, err := speed.Run(t.Context(), conn, speed.Request{Direction: direction, Seconds: 0.1}, nil)
		if err != nil || got.Bytes == 0 || got.Seconds <= 0 {
			t.Errorf("speed test %s: %+v, %v", direction, got, err)
		}
	}
}

func tcpPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l := listen(t)
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}
