package agents_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestStoreTwiceInOneBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	if diff := cmp.Diff([]uuid.UUID{id}, w.store(b, false, resource(id))); diff != "" {
		t.Fatalf("agents (-want +got):\n%s", diff)
	}
	// The agent connects while the job still runs.
	w.Exec(`UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now(), lifecycle_state = 'ready', logs_length = 5 WHERE id = $1`, id)
	w.Exec(`UPDATE workspace_agent_scripts SET exit_code = 0 WHERE agent_id = $1`, id)
	w.Exec(`UPDATE workspace_apps SET health = 'healthy' WHERE agent_id = $1`, id)
	w.store(b, true, resource(id, func(a *provisionerpb.Agent) { a.Directory = "/home" }))

	s := agents.New(w.opts)
	defer s.Stop()
	byJob, err := s.Resources(t.Context(), w.DB.Queries, map[uuid.UUID]agents.Place{b.Job: {Workspace: "dev", Owner: "ann"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(byJob[b.Job]) != 1 || len(byJob[b.Job][0].Agents) != 1 {
		t.Fatalf("resources: got %+v, want one with one agent", byJob[b.Job])
	}
	r := byJob[b.Job][0]
	if diff := cmp.Diff([]sdk.ResourceMetadata{{Key: "k", Value: "v"}}, []sdk.ResourceMetadata(r.Metadata)); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	a := r.Agents[0]
	if a.ID != id || a.Directory != "/home" || a.Status != sdk.AgentConnected || a.LifecycleState != sdk.LifecycleReady || a.LogsLength != 5 || !a.Health.Healthy {
		t.Errorf("agent: got %+v", a)
	}
	if len(a.Scripts) != 1 || len(a.LogSources) != 1 || a.Scripts[0].LogSourceID != a.LogSources[0].ID {
		t.Errorf("scripts %+v and log sources %+v: want one of each, that belong together", a.Scripts, a.LogSources)
	}
	if len(a.Apps) != 1 || a.Apps[0].SubdomainName != "code--main--dev--ann" || a.Apps[0].Health != sdk.AppHealthy {
		t.Errorf("apps: got %+v", a.Apps)
	}
	var exit *int32
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT exit_code FROM workspace_agent_scripts WHERE agent_id = $1`, id).Scan(&exit); err != nil || exit == nil {
		t.Errorf("exit code after the second store: %v, %v, want it kept", exit, err)
	}
}

func TestFinalStoreRemovesWhatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	w.store(b, false, resource(id), &provisionerpb.Resource{Type: "null_resource", Name: "gone"})
	w.store(b, true, resource(id))
	rows, err := w.DB.ListResources(t.Context(), []uuid.UUID{b.Job})
	if err != nil || len(rows) != 1 || rows[0].Name != "dev" {
		t.Errorf("resources: got %+v, %v, want dev alone", rows, err)
	}
}

func TestNextBuildStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ws := w.WorkspaceRow("ann", "dev")
	first := w.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded)
	id := uuid.New()
	w.store(first, true, resource(id))
	w.Exec(`UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now(), lifecycle_state = 'ready', logs_length = 5, logs_overflowed = true WHERE id = $1`, id)
	w.Exec(`UPDATE workspace_agent_log_sources SET last_seq = 7 WHERE agent_id = $1`, id)
	w.Exec(`INSERT INTO workspace_agent_logs (agent_id, log_source_id, created_at, level, output) SELECT agent_id, id, now(), 'info', 'old' FROM workspace_agent_log_sources WHERE agent_id = $1`, id)

	stop := w.BuildRow(ws, sdk.TransitionStop, sdk.JobSucceeded)
	if got := w.store(stop, true, resource(id)); len(got) != 0 {
		t.Errorf("a stop build stored agents %v", got)
	}
	if got := w.agent(id); got.BuildNumber != 1 {
		t.Errorf("the stop build took the agent: build %d", got.BuildNumber)
	}
	w.revoke(ws)
	off := w.agent(id)
	if off.TokenHash != nil || off.DisconnectedAt == nil || off.LifecycleState != "off" {
		t.Errorf("revoked agent: got %+v", off)
	}

	second := w.BuildRow(ws, sdk.TransitionStart, sdk.JobRunning)
	w.store(second, false, resource(id))
	got := w.agent(id)
	if got.BuildNumber != 3 || got.FirstConnectedAt != nil || got.LastConnectedAt != nil || got.DisconnectedAt != nil ||
		got.LifecycleState != "created" || got.LogsLength != 0 || got.LogsOverflowed {
		t.Errorf("agent of the new build: got %+v, want fresh states", got)
	}
	logs, err := w.DB.ListAgentLogsBefore(t.Context(), dbsqlc.ListAgentLogsBeforeParams{AgentID: id, Before: 1 << 62, PageLimit: 10})
	if err != nil || len(logs) != 0 {
		t.Errorf("old log: got %v, %v, want none", logs, err)
	}
	if rows, err := w.DB.ListAgentsOfResources(t.Context(), resourceIDs(t, w, first.Job)); err != nil || len(rows) != 0 {
		t.Errorf("agents left with the first build: %v, %v", rows, err)
	}
}

func resourceIDs(t *testing.T, w *world, job uuid.UUID) []uuid.UUID {
	t.Helper()
	rows, err := w.DB.ListResources(t.Context(), []uuid.UUID{job})
	if err != nil {
		t.Fatal(err)
	}
	ids := []uuid.UUID{}
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// TestNextBuildKeepsALivingConnection checks that a build does not mark an agent disconnected that stayed connected
// throughout.
func TestNextBuildKeepsALivingConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ws := w.WorkspaceRow("ann", "dev")
	id := uuid.New()
	w.store(w.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, resource(id))
	w.Exec(`UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now(), lifecycle_state = 'ready' WHERE id = $1`, id)
	w.store(w.BuildRow(ws, sdk.TransitionStart, sdk.JobRunning), false, resource(id))
	if got := w.agent(id); w.status(id) != sdk.AgentConnected || got.LifecycleState != "ready" || got.BuildNumber != 2 {
		t.Errorf("agent: got %+v, want it connected and ready in build 2", got)
	}
}

func TestAgentOfAnotherWorkspaceIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	victim := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	id := uuid.New()
	w.store(victim, true, resource(id))

	attacker := w.BuildRow(w.WorkspaceRow("bob", "evil"), sdk.TransitionStart, sdk.JobRunning)
	if got := w.store(attacker, true, resource(id, func(a *provisionerpb.Agent) { a.Token = "mine" })); len(got) != 0 {
		t.Errorf("stored %v", got)
	}
	got := w.agent(id)
	if *got.WorkspaceID != victim.Workspace || !secret.Token("token-"+id.String()).Matches(got.TokenHash) {
		t.Errorf("the agent was taken: %+v", got)
	}
	// An import, which could name any id.
	job := w.JobRow(sdk.JobTemplateImport, sdk.JobRunning)
	if err := w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error {
		_, err := agents.Store(t.Context(), q, agents.Batch{JobID: job, Transition: sdk.TransitionStart, Resources: []*provisionerpb.Resource{resource(id)}, Final: true})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if again := w.agent(id); again.ResourceID != got.ResourceID {
		t.Error("an import moved a workspace's agent")
	}
	shown, err := agents.New(w.opts).Resources(t.Context(), w.DB.Queries, map[uuid.UUID]agents.Place{job: {}})
	if err != nil || len(shown[job]) != 1 || len(shown[job][0].Agents) != 1 || shown[job][0].Agents[0].ID == id {
		t.Errorf("the import's resources: %+v, %v", shown[job], err)
	}
}

func TestTextThatPostgreSQLRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	w.store(b, true, resource(id, func(a *provisionerpb.Agent) {
		a.Directory, a.Env["B"] = "a\x00b", "\xff\x00"
		a.Scripts[0].Script = "echo \x00 \\u0000"
		a.Apps = append(a.Apps, a.Apps[0])
	}))
	if got := w.agent(id).Directory; got != "ab" {
		t.Errorf("directory: got %q", got)
	}
}

func TestAuthenticateAgent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		after func(w *world, first coderdtest.Build, id uuid.UUID)
		ok    bool
	}{
		{"start has succeeded", func(*world, coderdtest.Build, uuid.UUID) {}, true},
		{"start is running", func(w *world, b coderdtest.Build, _ uuid.UUID) { w.SetJobRow(b.Job, sdk.JobRunning) }, true},
		{"start has failed", func(w *world, b coderdtest.Build, _ uuid.UUID) { w.SetJobRow(b.Job, sdk.JobFailed) }, false},
		{"start was canceled", func(w *world, b coderdtest.Build, _ uuid.UUID) { w.SetJobRow(b.Job, sdk.JobCanceled) }, false},
		{"stop waits", func(w *world, b coderdtest.Build, _ uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobPending)
		}, true},
		{"stop is running, scripts have ended", func(w *world, b coderdtest.Build, id uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobRunning)
			w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'off' WHERE id = $1`, id)
		}, false},
		{"delete is running, scripts have failed", func(w *world, b coderdtest.Build, id uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionDelete, sdk.JobRunning)
			w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'shutdown_error' WHERE id = $1`, id)
		}, false},
		{"stop has succeeded", func(w *world, b coderdtest.Build, _ uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobSucceeded)
		}, false},
		{"stop has failed", func(w *world, b coderdtest.Build, _ uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionStop, sdk.JobFailed)
		}, false},
		{"another start is running", func(w *world, b coderdtest.Build, _ uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobRunning)
		}, true},
		{"another start left it out", func(w *world, b coderdtest.Build, _ uuid.UUID) {
			w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobSucceeded)
		}, false},
		{"another start has it", func(w *world, b coderdtest.Build, id uuid.UUID) {
			w.store(w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobSucceeded), true, resource(id))
		}, true},
		{"revoked", func(w *world, b coderdtest.Build, _ uuid.UUID) { w.revoke(b.Workspace) }, false},
		{"workspace is deleted", func(w *world, b coderdtest.Build, _ uuid.UUID) {
			w.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, b.Workspace)
		}, false},
		{"owner is suspended", func(w *world, _ coderdtest.Build, _ uuid.UUID) {
			w.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, w.owner)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := agents.New(w.opts)
			defer s.Stop()
			b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
			id := uuid.New()
			w.store(b, true, resource(id))
			tt.after(w, b, id)
			a, err := s.AuthenticateAgent(t.Context(), secret.Token("token-"+id.String()))
			admitted, listErr := s.Admitted(t.Context(), id)
			if listErr != nil || (len(admitted) == 1) != tt.ok {
				t.Errorf("Admitted = %v, %v, want it in: %t", admitted, listErr, tt.ok)
			}
			if !tt.ok {
				if fault.CodeOf(err) != fault.Unauthenticated {
					t.Errorf("AuthenticateAgent: got %+v, %v, want unauthenticated", a, err)
				}
				return
			}
			if want := (agents.Agent{ID: id, WorkspaceID: b.Workspace, OwnerID: w.owner, Name: "ann/dev.main"}); err != nil || a != want {
				t.Errorf("AuthenticateAgent: got %+v, %v, want %+v", a, err, want)
			}
		})
	}
}

func TestAuthenticateAgentUnknownToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := agents.New(w.opts)
	defer s.Stop()
	for _, token := range []secret.Token{"", "nobody's"} {
		if _, err := s.AuthenticateAgent(t.Context(), token); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("token %q: %v, want unauthenticated", token.Reveal(), err)
		}
	}
	// An agent that is faster than its build's report must try again, until the build has ended.
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	token := secret.Token("token-" + id.String())
	if _, err := s.AuthenticateAgent(t.Context(), token); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("while a build runs: %v, want unavailable", err)
	}
	w.store(b, false, resource(id))
	if a, err := s.AuthenticateAgent(t.Context(), token); err != nil || a.ID != id {
		t.Errorf("once it is reported: %v, %v", a, err)
	}
	w.SetJobRow(b.Job, sdk.JobFailed)
	if _, err := s.AuthenticateAgent(t.Context(), token); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("after the build has failed: %v, want unauthenticated", err)
	}
}

// meanwhile does something before a statement.
type meanwhile struct {
	dbsqlc.DBTX
	name string
	do   func()
}

func (m meanwhile) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if strings.HasPrefix(sql, "-- name: "+m.name+" ") {
		m.do()
	}
	return m.DBTX.QueryRow(ctx, sql, args...)
}

// TestAgentFasterThanItsBuild: a build reports an agent and ends while the server looks for the agent's token.
func TestAgentFasterThanItsBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	db := *w.DB
	db.Queries = dbsqlc.New(meanwhile{w.DB.Pool, "IsStartRunning", func() {
		w.store(b, true, resource(id))
		w.SetJobRow(b.Job, sdk.JobSucceeded)
	}})
	w.opts.DB = &db
	s := agents.New(w.opts)
	defer s.Stop()
	if a, err := s.AuthenticateAgent(t.Context(), secret.Token("token-"+id.String())); err != nil || a.ID != id {
		t.Errorf("got %v, %v", a, err)
	}
}

func TestMayConnect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := agents.New(w.opts)
	defer s.Stop()
	ws := w.WorkspaceRow("ann", "dev")
	id := uuid.New()
	w.store(w.BuildRow(ws, sdk.TransitionStart, sdk.JobSucceeded), true, resource(id))
	w.Exec(`UPDATE users SET roles = '{owner}' WHERE id = $1`, w.other)
	for name, tt := range map[string]struct {
		user, agent uuid.UUID
		want        fault.Code
	}{
		"owner":                  {w.owner, id, ""},
		"another, even an admin": {w.other, id, fault.NotFound},
		"nobody":                 {uuid.Nil, id, fault.NotFound},
		"no such agent":          {w.owner, uuid.New(), fault.NotFound},
	} {
		if got := fault.CodeOf(s.MayConnect(t.Context(), rbac.Actor{UserID: tt.user}, tt.agent)); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	w.BuildRow(ws, sdk.TransitionStop, sdk.JobSucceeded)
	if got := fault.CodeOf(s.MayConnect(t.Context(), rbac.Actor{UserID: w.owner}, id)); got != fault.Conflict {
		t.Errorf("stopped: got %q, want %q", got, fault.Conflict)
	}
}

func TestByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := agents.New(w.opts)
	defer s.Stop()
	main, second, first, foreign := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	named := func(name string) func(*provisionerpb.Agent) { return func(a *provisionerpb.Agent) { a.Name = name } }
	w.store(w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(main))
	w.store(w.BuildRow(w.WorkspaceRow("ann", "two"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(first, named("a")), resource(second, named("b")))
	w.store(w.BuildRow(w.WorkspaceRow("bob", "theirs"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(foreign))
	stopped := w.WorkspaceRow("ann", "stopped")
	w.store(w.BuildRow(stopped, sdk.TransitionStart, sdk.JobSucceeded), true, resource(uuid.New()))
	w.revoke(stopped)
	var owner, other string
	for id, name := range map[uuid.UUID]*string{w.owner: &owner, w.other: &other} {
		if err := w.DB.Pool.QueryRow(t.Context(), `SELECT username FROM users WHERE id = $1`, id).Scan(name); err != nil {
			t.Fatal(err)
		}
	}
	shared := uuid.New()
	lent := w.WorkspaceRow("bob", "lent")
	w.store(w.BuildRow(lent, sdk.TransitionStart, sdk.JobSucceeded), true, resource(shared))
	w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::uuid, 'use') WHERE id = $1`, lent, w.owner)
	w.Exec(`UPDATE users SET roles = '{owner}' WHERE id = $1`, w.owner) // an administrator finds no other agents by name
	for name, want := range map[string]uuid.UUID{
		"dev": main, "DEV": main, "dev.main": main, "me/dev": main, owner + "/dev": main, owner + "/dev.main": main, "two.b": second,
		"two": uuid.Nil, "dev.other": uuid.Nil, "dev.main.main": uuid.Nil, "none": uuid.Nil, "": uuid.Nil, "/": uuid.Nil, "/dev": main, "dev.": main,
		"bob/lent": shared, "bob/lent.main": shared, "lent": uuid.Nil, "me/lent": uuid.Nil, "bob/theirs": uuid.Nil,
		"theirs": uuid.Nil, other + "/theirs": uuid.Nil, other + "/dev": uuid.Nil, "stopped": uuid.Nil, "%": uuid.Nil, "d_v": uuid.Nil, "' OR true --": uuid.Nil,
	} {
		got, err := s.ByName(t.Context(), w.owner, name)
		if got != want || (want == uuid.Nil) != (fault.CodeOf(err) == fault.NotFound) {
			t.Errorf("%q: got %s, %v; want %s", name, got, err, want)
		}
	}
}
