package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/yamux"
	"google.golang.org/protobuf/encoding/protowire"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcerr"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// program is a client of the routes for programs that add to an agent's log.
type program struct {
	t     *testing.T
	u     *url.URL
	token string
}

// send answers with the status of a request, and what it says.
func (p program) send(method, path string, body any) (int, string) {
	p.t.Helper()
	text, raw := body.(string)
	data := []byte(text)
	if !raw {
		var err error
		if data, err = json.Marshal(body); err != nil {
			p.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.u.String()+"/api/v2/workspaceagents/me/"+path, bytes.NewReader(data))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Coder-Session-Token", p.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// dial opens the websocket as envbuilder and coder-logstream-kube do: with the agent's token in a cookie.
func (p program) dial(query string) (*yamux.Session, error) {
	p.t.Helper()
	ws, err := websock.Dial(p.t.Context(), p.u.JoinPath("/api/v2/workspaceagents/me/rpc").ResolveReference(&url.URL{RawQuery: query}), websock.DialOptions{
		Header: http.Header{"Cookie": {"coder_session_token=" + p.token}}, PingInterval: -1,
	})
	if err != nil {
		return nil, err
	}
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	session, err := yamux.Client(ws.NetConn(context.Background()), config)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { session.Close() })
	return session, nil
}

// raw passes bytes as they are.
type raw struct{}

func (raw) Marshal(m drpc.Message) ([]byte, error)      { return *m.(*[]byte), nil }
func (raw) Unmarshal(data []byte, m drpc.Message) error { *m.(*[]byte) = bytes.Clone(data); return nil }

// call makes one call on a stream of its own.
func (p program) call(session *yamux.Session, name string, in []byte) ([]byte, error) {
	p.t.Helper()
	stream, err := session.Open()
	if err != nil {
		return nil, err
	}
	conn := drpcconn.New(stream)
	defer conn.Close()
	var out []byte
	err = conn.Invoke(p.t.Context(), "/coder.agent.v2.Agent/"+name, raw{}, &in, &out)
	return out, err
}

// batch encodes lines as the programs do.
func batch(source uuid.UUID, at time.Time, level uint64, lines ...string) []byte {
	field := func(to []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), value)
	}
	out := field(nil, 1, source[:])
	for _, text := range lines {
		when := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(at.Unix()))
		line := field(field(nil, 1, when), 2, []byte(text))
		line = protowire.AppendVarint(protowire.AppendTag(line, 3, protowire.VarintType), level)
		out = field(out, 2, line)
	}
	return out
}

// log returns the lines of an agent's log as "source: level: text", as the owner reads them.
func (w *world) agentLog(u *url.URL, id uuid.UUID) (lines []string) {
	w.T.Helper()
	var a sdk.WorkspaceAgent
	var all []sdk.AgentLog
	get(w.T.(*testing.T), u, w.Token("ann"), id.String(), &a)
	get(w.T.(*testing.T), u, w.Token("ann"), id.String()+"/logs", &all)
	for _, l := range all {
		at := slices.IndexFunc(a.LogSources, func(s sdk.AgentLogSource) bool { return s.ID == l.SourceID })
		if at < 0 {
			w.T.Fatalf("%q has no source: %+v", l.Output, a.LogSources)
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s", a.LogSources[at].DisplayName, l.Level, l.Output))
	}
	return lines
}

// TestPrograms sends what coder-logstream-kube and envbuilder send, in their present and their earlier form.
func TestPrograms(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	p := program{t, u, "token-" + id.String()}
	kube := uuid.New()
	status, text := p.send("POST", "log-source", map[string]any{"id": kube, "display_name": "Kubernetes", "icon": "/icon/k8s.png"})
	var source sdk.AgentLogSource
	if err := json.Unmarshal([]byte(text), &source); err != nil || status != http.StatusCreated || source.ID != kube || source.WorkspaceAgentID != id || source.CreatedAt.IsZero() {
		t.Fatalf("source: %d %s, %v", status, text, err)
	}
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	if status, text := p.send("PATCH", "logs", map[string]any{"log_source_id": kube, "logs": []any{
		map[string]any{"created_at": at, "output": "pod \x00created", "level": "info"}, map[string]any{"output": "no room", "level": "error"},
	}}); status != http.StatusOK {
		t.Fatalf("lines: %d %s", status, text)
	}
	session, err := p.dial("role=logstream-kube&version=2.8")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.call(session, "BatchCreateLogs", batch(kube, at, 4, "pulling image", "pulled")); err != nil || len(out) > 0 {
		t.Fatalf("call: %x, %v", out, err)
	}
	build, err := p.dial("version=2.0") // envbuilder names no source
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.call(build, "BatchCreateLogs", batch(uuid.New(), at, 3, "#1: Cloning")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Kubernetes: info: pod created", "Kubernetes: error: no room", "Kubernetes: warn: pulling image", "Kubernetes: warn: pulled", "Other programs: info: #1: Cloning",
	}
	if got := w.agentLog(u, id); !slices.Equal(got, want) {
		t.Errorf("log:\n%q\nwant\n%q", got, want)
	}
	if _, err := p.call(session, "GetManifest", nil); drpcerr.Code(err) != drpcerr.Unimplemented {
		t.Errorf("another call: %v", err)
	}
	// More than is kept of a source. The program is not asked to stop: it would, and the last lines are those that explain a failure.
	long := slices.Repeat([]string{strings.Repeat("x", 1000)}, 600)
	for _, lines := range [][]string{long, long, long, {"the end"}} {
		if out, err := p.call(session, "BatchCreateLogs", batch(kube, at, 3, lines...)); err != nil || len(out) > 0 {
			t.Fatalf("a long log: %x, %v", out, err)
		}
	}
	got := w.agentLog(u, id)
	if len(got) > 1200 || got[len(got)-1] != "Kubernetes: info: the end" {
		t.Errorf("a long log has %d lines, the last one %.40q", len(got), got[len(got)-1])
	}
	s.Stop()
	if err := closed(session); err != nil {
		t.Error(err)
	}
}

// closed waits for the end of a connection.
func closed(session *yamux.Session) error {
	select {
	case <-session.CloseChan():
		return nil
	case <-time.After(testwait.Patience):
		return errors.New("the connection goes on")
	}
}

// TestProgramsAreRefused attacks the routes for programs: with tokens that are none, with that of another workspace, for a
// suspended owner, with too much, and after the workspace has stopped.
func TestProgramsAreRefused(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	other := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "spy"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(other))
	var suspended error
	w.opts.Accounts = fakeAccounts{&suspended}
	s := agents.New(w.opts)
	s.Start()
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	source := uuid.New()
	named := map[string]any{"id": source, "display_name": "Kubernetes"}
	lines := map[string]any{"log_source_id": source, "logs": []any{map[string]any{"output": "mine"}}}
	refuseStrangers(t, w, u, named, lines)
	owner, spy := program{t, u, "token-" + id.String()}, program{t, u, "token-" + other.String()}
	// Another workspace's program has the same id of a source, and that of the agent's own script: it writes to its own log.
	if status, text := owner.send("POST", "log-source", named); status != http.StatusCreated {
		t.Fatalf("source: %d %s", status, text)
	}
	var a sdk.WorkspaceAgent
	get(t, u, w.Token("ann"), id.String(), &a)
	for _, known := range append([]sdk.AgentLogSource{{ID: source}}, a.LogSources...) {
		if status, _ := spy.send("POST", "log-source", map[string]any{"id": known.ID, "display_name": "Spy"}); status != http.StatusCreated {
			t.Errorf("the spy's own source: %d", status)
		}
		if status, _ := spy.send("PATCH", "logs", map[string]any{"log_source_id": known.ID, "logs": []any{map[string]any{"output": "forged"}}}); status != http.StatusOK {
			t.Errorf("the spy's own line: %d", status)
		}
	}
	if got := w.agentLog(u, id); len(got) != 0 {
		t.Errorf("the spy wrote %q", got)
	}
	refuseInputs(t, owner, source)
	session, err := owner.dial("version=2.0")
	if err != nil {
		t.Fatal(err)
	}
	refuseCalls(t, owner, session, source)
	suspended = fault.New(fault.Forbidden, "suspended")
	if status, text := owner.send("PATCH", "logs", lines); status != http.StatusForbidden {
		t.Errorf("a suspended owner's program: %d %s", status, text)
	}
	if _, err := owner.call(session, "BatchCreateLogs", batch(source, time.Now(), 3, "x")); err == nil || !strings.Contains(err.Error(), "not active") {
		t.Errorf("a suspended owner's connection: %v", err)
	}
	suspended = nil
	w.revoke(b.Workspace)
	if err := closed(session); err != nil {
		t.Errorf("after the stop: %v", err)
	}
	if status, text := owner.send("PATCH", "logs", lines); status != http.StatusUnauthorized {
		t.Errorf("after the stop: %d %s", status, text)
	}
	if got := w.agentLog(u, id); len(got) != 0 {
		t.Errorf("log: %q", got)
	}
}

// refuseStrangers attacks the routes with tokens that are none of an agent.
func refuseStrangers(t *testing.T, w *world, u *url.URL, named, lines map[string]any) {
	t.Helper()
	for _, token := range []string{"", "guess", w.Token("ann"), "token-" + uuid.NewString()} {
		p := program{t, u, token}
		for path, body := range map[string]any{"log-source": named, "logs": lines} {
			if status, text := p.send(map[string]string{"log-source": "POST", "logs": "PATCH"}[path], path, body); status != http.StatusUnauthorized {
				t.Errorf("%q at %s: %d %s", token, path, status, text)
			}
		}
		if _, err := p.dial("version=2.0"); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// refuseInputs sends unusable sources and lines, and more sources than an agent may have, of which it has one.
func refuseInputs(t *testing.T, owner program, source uuid.UUID) {
	t.Helper()
	for name, send := range map[string]func() (int, string){
		"no id":   func() (int, string) { return owner.send("POST", "log-source", map[string]any{"display_name": "x"}) },
		"no name": func() (int, string) { return owner.send("POST", "log-source", map[string]any{"id": source}) },
		"long name": func() (int, string) {
			return owner.send("POST", "log-source", map[string]any{"id": source, "display_name": strings.Repeat("x", 100)})
		},
		"long icon": func() (int, string) {
			return owner.send("POST", "log-source", map[string]any{"id": source, "display_name": "x", "icon": strings.Repeat("x", 1000)})
		},
		"too large": func() (int, string) {
			return owner.send("PATCH", "logs", `{"logs":[{"output":"`+strings.Repeat("x", 3<<20)+`"}]}`)
		},
		"no JSON": func() (int, string) { return owner.send("PATCH", "logs", "{") },
	} {
		if status, text := send(); status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
	for i := range 20 {
		status, text := owner.send("POST", "log-source", map[string]any{"id": uuid.New(), "display_name": fmt.Sprint("source ", i)})
		if want := map[bool]int{true: http.StatusCreated, false: http.StatusConflict}[i < 15]; status != want {
			t.Errorf("source %d: %d %s", i+2, status, text)
		}
	}
}

// refuseCalls sends unusable messages to a connection, and opens more connections than an agent may have.
func refuseCalls(t *testing.T, owner program, session *yamux.Session, source uuid.UUID) {
	t.Helper()
	if _, err := owner.call(session, "BatchCreateLogs", batch(source, time.Now(), 3, strings.Repeat("x", 3<<20))); err == nil {
		t.Error("a message of 3 MiB was taken")
	}
	for _, broken := range [][]byte{{0xff}, {1 << 3}, batch(source, time.Now(), 3, "x")[:20], {1<<3 | 2, 1, 0}} {
		if _, err := owner.call(session, "BatchCreateLogs", broken); err == nil {
			t.Errorf("%x was taken", broken)
		}
	}
	for range 7 {
		if _, err := owner.dial("version=2.0"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := owner.dial("version=2.0"); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("the ninth connection: %v", err)
	}
}

// TestProgramsDuringABuild: what programs have added stays when the build reports the agent completely, and goes with the
// next build.
func TestProgramsDuringABuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ws := w.WorkspaceRow("ann", "dev")
	first := w.BuildRow(ws, sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	w.store(first, false, resource(id))
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	p, kube := program{t, u, "token-" + id.String()}, uuid.New()
	p.send("POST", "log-source", map[string]any{"id": kube, "display_name": "Kubernetes"})
	if status, text := p.send("PATCH", "logs", map[string]any{"log_source_id": kube, "logs": []any{map[string]any{"output": "pod created"}}}); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	w.store(first, true, resource(id))
	if got := w.agentLog(u, id); !slices.Equal(got, []string{"Kubernetes: info: pod created"}) {
		t.Errorf("after the build's last report: %q", got)
	}
	w.store(w.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, resource(id))
	var a sdk.WorkspaceAgent
	get(t, u, w.Token("ann"), id.String(), &a)
	if got := w.agentLog(u, id); len(got) != 0 || len(a.LogSources) != 1 {
		t.Errorf("after the next build: %q, %+v", got, a.LogSources)
	}
}
