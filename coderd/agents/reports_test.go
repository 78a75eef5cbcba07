package agents_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	start := time.Now().Add(-time.Minute)
	report := func(state agentpb.LifecycleState, at time.Time) {
		t.Helper()
		if _, err := c.Lifecycle(t.Context(), connect.NewRequest(&agentpb.LifecycleRequest{State: state, ChangedAt: timestamppb.New(at)})); err != nil {
			t.Fatal(err)
		}
	}
	report(agentpb.LifecycleState_LIFECYCLE_STATE_STARTING, start)
	report(agentpb.LifecycleState_LIFECYCLE_STATE_READY, start.Add(2*time.Second))
	report(agentpb.LifecycleState_LIFECYCLE_STATE_STARTING, start.Add(time.Second)) // late
	a := w.agent(id)
	if a.LifecycleState != "ready" || a.StartedAt == nil || a.ReadyAt == nil || a.ReadyAt.Sub(*a.StartedAt) != 2*time.Second {
		t.Errorf("agent: got %s, started %v, ready %v", a.LifecycleState, a.StartedAt, a.ReadyAt)
	}
	// A clock ahead of the server's does not block later reports.
	report(agentpb.LifecycleState_LIFECYCLE_STATE_SHUTTING_DOWN, time.Now().Add(time.Hour))
	report(agentpb.LifecycleState_LIFECYCLE_STATE_OFF, time.Now().Add(time.Hour))
	if got := w.agent(id).LifecycleState; got != "off" {
		t.Errorf("state: got %s, want off", got)
	}
	_, err := c.Lifecycle(t.Context(), connect.NewRequest(&agentpb.LifecycleRequest{ChangedAt: timestamppb.Now()}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no state: %v, want invalid argument", err)
	}
}

// TestEmptyLinesAreBounded checks that lines without text cost as much as others: a log of them is bounded in rows, notes
// what is left out, and is served page by page.
func TestEmptyLinesAreBounded(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	s := agents.New(w.opts)
	sv := serve(t, s)
	c := sv.client(id)
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	source := m.Msg.GetScripts()[0].GetLogSourceId()
	const lines, batch = 60_000, 20_000
	for seq := uint64(0); seq < lines; {
		req := &agentpb.LogsRequest{LogSourceId: source}
		for range batch {
			seq++
			req.Lines = append(req.Lines, &agentpb.LogLine{Seq: seq})
		}
		got, err := c.Logs(t.Context(), connect.NewRequest(req))
		if err != nil || got.Msg.GetStoredSeq() != seq || !got.Msg.GetLimitExceeded() {
			t.Fatalf("line %d: %v, %v; want it stored and the limit exceeded", seq, got, err)
		}
	}
	var shown []sdk.AgentLog
	if status := get(t, w.Serve(s), w.Token("ann"), id.String()+"/logs", &shown); status != 200 {
		t.Fatalf("log answered with %d", status)
	}
	if most := agents.MaxLogs * 5 / 4 / agents.LineOverhead; len(shown) > most || len(shown) < agents.MaxLogs/2/agents.LineOverhead {
		t.Errorf("%d lines are kept, want at most %d", len(shown), most)
	}
	missing := 0
	for _, line := range shown {
		if line.Output != "" {
			if _, err := fmt.Sscanf(line.Output, "[%d lines are left out here", &missing); err != nil {
				t.Errorf("line %q: %v", line.Output, err)
			}
		}
	}
	if missing+len(shown)-1 != lines {
		t.Errorf("%d lines are kept and %d left out, want %d in all", len(shown)-1, missing, lines)
	}
	if a := w.agent(id); !a.LogsOverflowed || a.LogsLength < agents.MaxLogs/2 {
		t.Errorf("agent: overflowed %t with %d bytes", a.LogsOverflowed, a.LogsLength)
	}
}

func logLine(seq uint64, output string) *agentpb.LogLine {
	return &agentpb.LogLine{Seq: seq, At: timestamppb.Now(), Level: agentpb.LogLevel_LOG_LEVEL_WARN, Output: output}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	source := m.Msg.GetScripts()[0].GetLogSourceId()
	send := func(source []byte, lines ...*agentpb.LogLine) (*agentpb.LogsResponse, error) {
		resp, err := c.Logs(t.Context(), connect.NewRequest(&agentpb.LogsRequest{LogSourceId: source, Lines: lines}))
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	for range 2 { // the same batch again, as after a lost answer
		got, err := send(source, logLine(1, "one"), logLine(2, "two\x00"))
		if err != nil || got.GetStoredSeq() != 2 || got.GetLimitExceeded() {
			t.Fatalf("got %v, %v, want 2 lines stored", got, err)
		}
	}
	if got, err := send(source, logLine(2, "two"), logLine(3, "three")); err != nil || got.GetStoredSeq() != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
	var outputs []string
	rows, err := w.DB.ListAgentLogsBefore(t.Context(), dbsqlc.ListAgentLogsBeforeParams{AgentID: id, Before: 1 << 62, PageLimit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		outputs = append(outputs, r.Level+" "+r.Output)
	}
	if diff := cmp.Diff([]string{"warn one", "warn two", "warn three"}, outputs); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}

	// A long log keeps its beginning and its end, and notes what is missing between them.
	seq := uint64(3)
	for range 40 {
		var batch []*agentpb.LogLine
		for range 64 {
			seq++
			batch = append(batch, logLine(seq, fmt.Sprintf("%06d %s", seq, strings.Repeat("ü", 500))))
		}
		got, err := send(source, batch...)
		if err != nil || got.GetStoredSeq() != seq {
			t.Fatalf("line %d: got %v, %v", seq, got, err)
		}
		if want := (seq-3)*(1007+agents.LineOverhead) > agents.MaxLogs/2; got.GetLimitExceeded() != want {
			t.Errorf("line %d: the beginning is full: %t, want %t", seq, got.GetLimitExceeded(), want)
		}
	}
	if rows, err = w.DB.ListAgentLogsBefore(t.Context(), dbsqlc.ListAgentLogsBeforeParams{AgentID: id, Before: 1 << 62, PageLimit: 10000}); err != nil {
		t.Fatal(err)
	}
	wantCut(t, rows[3:], 4, seq)
	if a := w.agent(id); !a.LogsOverflowed || a.LogsLength > agents.MaxLogs*5/4 || a.LogsLength < agents.MaxLogs*3/4 {
		t.Errorf("agent: overflowed %t with %d bytes", a.LogsOverflowed, a.LogsLength)
	}

	foreign := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign))
	sources, err := w.DB.ListLogSourcesOfAgents(t.Context(), []uuid.UUID{foreign})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(sources[0].ID[:], logLine(1, "hi")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another agent's log: %v, want permission denied", err)
	}
}

// wantCut checks that the rows are the lines from first to last, each with its number, except for one gap that says how many lines it stands for.
func wantCut(t *testing.T, rows []dbsqlc.WorkspaceAgentLog, first, last uint64) {
	t.Helper()
	var size, missing, gaps int
	next := first
	for _, r := range rows {
		size += len(r.Output) + agents.LineOverhead
		if n, err := fmt.Sscanf(r.Output, "[%d lines are left out here", &missing); n == 1 && err == nil {
			gaps++
			next += uint64(missing)
			continue
		}
		if want := fmt.Sprintf("%06d ", next); !strings.HasPrefix(r.Output, want) {
			t.Fatalf("line %.20q, want %s", r.Output, want)
		}
		next++
	}
	if gaps != 1 || next != last+1 || size > agents.MaxLogs*5/4 || size < agents.MaxLogs*3/4 {
		t.Errorf("%d gaps, %d lines in all, %d bytes kept; want one gap, %d lines", gaps, next-1, size, last)
	}
}

func TestScriptDone(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	foreign := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign, func(*provisionerpb.Agent) {}))
	c := serve(t, agents.New(w.opts)).client(id)
	scripts, err := w.DB.ListScriptsOfAgents(t.Context(), []uuid.UUID{id, foreign})
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range scripts {
		_, err := c.ScriptDone(t.Context(), connect.NewRequest(&agentpb.ScriptDoneRequest{
			ScriptId: sc.ID[:], StartedAt: timestamppb.Now(), EndedAt: timestamppb.Now(), ExitCode: 3, Stage: "start",
		}))
		want := connect.Code(0)
		if sc.AgentID == foreign {
			want = connect.CodePermissionDenied
		}
		if err == nil && want != 0 || err != nil && connect.CodeOf(err) != want {
			t.Errorf("script of agent %s: %v, want code %v", sc.AgentID, err, want)
		}
	}
	if scripts, err = w.DB.ListScriptsOfAgents(t.Context(), []uuid.UUID{id}); err != nil || scripts[0].ExitCode == nil || *scripts[0].ExitCode != 3 {
		t.Errorf("script: got %+v, %v, want exit code 3", scripts, err)
	}
}

func TestAppHealth(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	foreign := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign))
	c := serve(t, agents.New(w.opts)).client(id)
	apps, err := w.DB.ListAppsOfAgents(t.Context(), []uuid.UUID{id, foreign})
	if err != nil {
		t.Fatal(err)
	}
	req := &agentpb.AppHealthRequest{}
	for _, app := range apps {
		req.Apps = append(req.Apps, &agentpb.AppState{Id: app.ID[:], Health: agentpb.Health_HEALTH_UNHEALTHY})
	}
	if _, err := c.AppHealth(t.Context(), connect.NewRequest(req)); err != nil {
		t.Fatal(err)
	}
	if apps, err = w.DB.ListAppsOfAgents(t.Context(), []uuid.UUID{id, foreign}); err != nil {
		t.Fatal(err)
	}
	for _, app := range apps {
		want := "unhealthy"
		if app.AgentID == foreign {
			want = "initializing"
		}
		if app.Health != want {
			t.Errorf("app of agent %s: got %s, want %s", app.AgentID, app.Health, want)
		}
	}
	_, err = c.AppHealth(t.Context(), connect.NewRequest(&agentpb.AppHealthRequest{Apps: []*agentpb.AppState{{Id: []byte("x")}}}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no id: %v, want invalid argument", err)
	}
	m, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil || len(m.Msg.GetApps()) != 1 || m.Msg.GetApps()[0].GetUrl() != "http://localhost:8080/healthz" {
		t.Errorf("manifest: got %v, %v, want the app's health check", m, err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	s := agents.New(w.opts)
	u := w.Serve(s)
	c := serve(t, s).client(id)
	w.Exec(`UPDATE workspaces SET last_used_at = now() - interval '1 hour' WHERE id = $1`, b.Workspace)
	w.Exec(`UPDATE workspace_builds SET deadline = now() + interval '10 minutes' WHERE workspace_id = $1`, b.Workspace)
	heartbeat(t, hello(t, c), 1)
	if _, err := c.Stats(t.Context(), connect.NewRequest(&agentpb.StatsRequest{Ssh: 2, ReconnectingPty: 1})); err != nil {
		t.Fatal(err)
	}
	var used, later bool
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT w.last_used_at > now() - interval '1 minute', b.deadline > now() + interval '50 minutes'
		FROM workspaces w JOIN workspace_builds b ON b.workspace_id = w.id WHERE w.id = $1`, b.Workspace).Scan(&used, &later); err != nil || !used || !later {
		t.Errorf("used: %t, deadline moved: %t, %v", used, later, err)
	}
	var a sdk.WorkspaceAgent
	get(t, u, w.Token("ann"), id.String(), &a)
	if diff := cmp.Diff(&sdk.AgentConnections{SSH: 2, ReconnectingPTY: 1}, a.Connections); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
}
