package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

func get(t *testing.T, u *url.URL, token, path string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String()+"/api/v2/workspaceagents/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Coder-Session-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if into != nil && resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}

func TestAgentRoutesAreTheOwners(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	for _, tt := range []struct {
		who, token, path string
		want             int
	}{
		{"owner", w.Token("ann"), id.String(), 200},
		{"owner", w.Token("ann"), id.String() + "/logs", 200},
		{"owner", w.Token("ann"), id.String() + "/connection", 200},
		{"template admin", w.Token("tom"), id.String(), 200},
		{"template admin", w.Token("tom"), id.String() + "/logs", 200},
		{"template admin", w.Token("tom"), id.String() + "/connection", 403},
		{"owner of the deployment", w.Token("olga"), id.String() + "/connection", 403},
		{"owner of the deployment", w.Token("olga"), id.String() + "/listening-ports", 403},
		{"another", w.Token("bob"), id.String(), 404},
		{"another", w.Token("bob"), id.String() + "/logs", 404},
		{"another", w.Token("bob"), id.String() + "/logs?follow", 404},
		{"another", w.Token("bob"), id.String() + "/connection", 404},
		{"owner", w.Token("ann"), id.String() + "/listening-ports", 503}, // this server cannot dial agents
		{"owner", w.Token("ann"), id.String() + "/pty?reconnect=" + uuid.NewString(), 503},
		{"owner", w.Token("ann"), id.String() + "/pty?reconnect=x", 400},
		{"owner", w.Token("ann"), id.String() + "/pty?reconnect=" + uuid.NewString() + "&height=many", 400},
		{"template admin", w.Token("tom"), id.String() + "/listening-ports", 403},
		{"template admin", w.Token("tom"), id.String() + "/pty?reconnect=" + uuid.NewString(), 403},
		{"another", w.Token("bob"), id.String() + "/listening-ports", 404},
		{"another", w.Token("bob"), id.String() + "/pty?reconnect=" + uuid.NewString(), 404},
		{"another", w.Token("bob"), id.String() + "/watch-metadata", 404},
		{"another", w.Token("bob"), id.String() + "/watch-metadata-ws", 404},
		{"nobody", "", id.String() + "/pty?reconnect=" + uuid.NewString(), 401},
		{"nobody", "", id.String(), 401},
		{"owner", w.Token("ann"), uuid.NewString(), 404},
		{"owner", w.Token("ann"), "x", 400},
		{"owner", w.Token("ann"), id.String() + "/logs?after=x", 400},
	} {
		if got := get(t, u, tt.token, tt.path, nil); got != tt.want {
			t.Errorf("%s: GET %s: got %d, want %d", tt.who, tt.path, got, tt.want)
		}
	}
	var a sdk.WorkspaceAgent
	get(t, u, w.Token("ann"), id.String(), &a)
	if a.ID != id || a.Status != sdk.AgentConnecting || len(a.Apps) != 1 || a.Apps[0].SubdomainName != "code--main--dev--ann" {
		t.Errorf("agent: got %+v", a)
	}
}

func TestFollowLogs(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	write := func(output string) {
		w.Exec(`INSERT INTO workspace_agent_logs (agent_id, log_source_id, created_at, level, output) SELECT agent_id, id, now(), 'info', $2 FROM workspace_agent_log_sources WHERE agent_id = $1`, id, output)
		if err := w.DB.NotifyAgent(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	follow := func() *websock.Conn {
		ws, err := websock.Dial(t.Context(), u.JoinPath("/api/v2/workspaceagents", id.String(), "logs").ResolveReference(&url.URL{RawQuery: "follow"}),
			websock.DialOptions{Header: http.Header{sdk.SessionHeader: {w.Token("ann")}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ws.CloseNow() })
		return ws
	}
	ws := follow()
	expect := func(want string) {
		t.Helper()
		var lines []sdk.AgentLog
		if err := ws.ReadJSON(t.Context(), &lines); err != nil || len(lines) != 1 || lines[0].Output != want {
			t.Fatalf("got %+v, %v, want %q", lines, err, want)
		}
	}
	expect("one")
	write("two")
	expect("two")
	var all []sdk.AgentLog
	get(t, u, w.Token("ann"), id.String()+"/logs", &all)
	if len(all) != 2 {
		t.Fatalf("log: got %+v, want two lines", all)
	}
	var rest []sdk.AgentLog
	get(t, u, w.Token("ann"), id.String()+"/logs?after="+jsonNumber(all[0].ID), &rest)
	if len(rest) != 1 || rest[0].Output != "two" {
		t.Errorf("after the first: got %+v", rest)
	}
	// The log of a build ends with it.
	w.store(w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobRunning), false, resource(id))
	if err := w.DB.NotifyAgent(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	closed := func(ws *websock.Conn, want websock.Status) {
		t.Helper()
		_, err := ws.Read(context.WithoutCancel(t.Context()))
		if ce, ok := errors.AsType[*websock.CloseError](err); !ok || ce.Status != want {
			t.Errorf("end of the log: %v, want status %d", err, want)
		}
	}
	closed(ws, websock.StatusNormal)
	ws = follow()
	write("three")
	expect("three")
	s.Stop()
	closed(ws, websock.StatusGoingAway)
}

func jsonNumber(n int64) string {
	data, _ := json.Marshal(n)
	return string(data)
}

// TestStartupProblem checks that the report of a start script is shown with the agent and in its log, until the agent
// connects.
func TestStartupProblem(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	s := agents.New(w.opts)
	u := w.Serve(s)
	report := func(body string) int {
		t.Helper()
		resp, err := http.Post(u.JoinPath("/api/v2/workspaceagents/me/startup-problem").String(), "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for body, want := range map[string]int{
		"": 400, "no message": 400, "wrong\nx": 401, "token-" + id.String() + "\n \n": 400,
		"token-" + id.String() + "\n" + strings.Repeat("x", 10_000): 400,
	} {
		if got := report(body); got != want {
			t.Errorf("report %.30q: got %d, want %d", body, got, want)
		}
	}
	for range 2 { // the second report adds nothing
		if got := report("token-" + id.String() + "\nThe clock is wrong\x00\x1b[31m.\n"); got != http.StatusNoContent {
			t.Fatalf("report: %d", got)
		}
	}
	var a sdk.WorkspaceAgent
	get(t, u, w.Token("ann"), id.String(), &a)
	if a.Health.Healthy || a.Health.Reason != "The clock is wrong[31m." {
		t.Errorf("health: %+v", a.Health)
	}
	var lines []sdk.AgentLog
	get(t, u, w.Token("ann"), id.String()+"/logs", &lines)
	if len(lines) != 1 || lines[0].Output != "The clock is wrong[31m." || lines[0].Level != sdk.LogError || !slices.ContainsFunc(a.LogSources, func(src sdk.AgentLogSource) bool { return src.ID == lines[0].SourceID }) {
		t.Errorf("log: %+v, sources %+v", lines, a.LogSources)
	}
	c := serve(t, s).client(id)
	heartbeat(t, hello(t, c), 1)
	var there sdk.WorkspaceAgent
	get(t, u, w.Token("ann"), id.String(), &there)
	if !there.Health.Healthy {
		t.Errorf("health of an agent that is there: %+v", there.Health)
	}
	if got := report("token-" + id.String() + "\nlate"); got != http.StatusNoContent {
		t.Errorf("late report: %d", got)
	}
	get(t, u, w.Token("ann"), id.String(), &there)
	if !there.Health.Healthy {
		t.Errorf("health after a late report: %+v", there.Health)
	}
}
