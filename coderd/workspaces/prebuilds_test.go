package workspaces_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// prebuilding is the import of a template with a preset "big" that has prebuilt workspaces.
func prebuilding(p *provisionerpb.Prebuilds) *provisionerpb.ImportResult {
	found := process()
	found.Presets[0].Prebuilds = p
	return found
}

// pool is a server with a template that has prebuilt workspaces.
type pool struct {
	*coderdtest.Server
	template sdk.Template
	preset   uuid.UUID
	now      time.Time
}

func newPool(t *testing.T, p *provisionerpb.Prebuilds) *pool {
	t.Helper()
	w := &pool{Server: coderdtest.New(t), now: time.Now()}
	w.template = w.Template("process", prebuilding(p))
	w.preset = w.presetOf(w.template.ActiveVersionID)
	return w
}

func (w *pool) presetOf(version uuid.UUID) uuid.UUID {
	w.T.Helper()
	presets, err := w.As("tom").TemplateVersionPresets(w.T.Context(), version)
	if err != nil || len(presets) != 1 || presets[0].DesiredPrebuildInstances == nil {
		w.T.Fatalf("presets: %+v, %v", presets, err)
	}
	return presets[0].ID
}

// prebuilt lists the prebuilt workspaces as an owner of the deployment sees them.
func (w *pool) prebuilt() []sdk.Workspace {
	w.T.Helper()
	got, err := w.As("olga").Workspaces(w.T.Context(), sdk.WorkspacesQuery{Q: "owner:prebuilds"})
	if err != nil {
		w.T.Fatal(err)
	}
	return got.Workspaces
}

// run reconciles, and fails the test unless there are then n prebuilt workspaces.
func (w *pool) run(n int) {
	w.T.Helper()
	schedule(w.T.(*testing.T), w.Server, w.now)
	if got := w.prebuilt(); len(got) != n {
		w.T.Fatalf("%d prebuilt workspaces, want %d", len(got), n)
	}
}

// start finishes the next job, with an agent that has run its start scripts.
func (w *pool) start() (*coderdtest.Job, uuid.UUID) {
	w.T.Helper()
	job, agent := w.Daemon().Next(), uuid.New()
	job.Finish(coderdtest.Built("state of "+agent.String(), coderdtest.Resource(agent)))
	w.ready(agent)
	return job, agent
}

func (w *pool) ready(agent uuid.UUID) {
	w.T.Helper()
	w.Exec("UPDATE workspace_agents SET first_connected_at = now(), last_connected_at = now(), disconnected_at = NULL, lifecycle_state = 'ready' WHERE id = $1", agent)
}

// create creates a workspace from the preset.
func (w *pool) create(user, name string, edit ...func(*sdk.CreateWorkspaceRequest)) (sdk.Workspace, error) {
	req := sdk.CreateWorkspaceRequest{TemplateID: w.template.ID, Name: name, TemplateVersionPresetID: w.preset}
	for _, edit := range edit {
		edit(&req)
	}
	return w.As(user).CreateWorkspace(w.T.Context(), sdk.Me, req)
}

// TestPrebuilds follows a prebuilt workspace from its creation to its user.
func TestPrebuilds(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 2})
	w.run(2)
	w.run(2)
	job, _ := w.start()
	m := job.GetWorkspaceBuild().GetMetadata()
	if !m.GetPrebuild() || m.GetPrebuildClaim() || m.GetOwnerName() != sdk.PrebuildsOwner || m.GetOwnerSshPublicKey() != "" || m.GetOwnerSessionToken() != "" {
		t.Errorf("the job of a prebuilt workspace gets %v", m)
	}
	if job.GetWorkspaceBuild().GetReplacement() != nil {
		t.Error("the job of a prebuilt workspace may not replace everything")
	}
	w.start()
	all := w.prebuilt()
	for _, ws := range all {
		if !ws.IsPrebuild || ws.LatestBuild.Deadline != nil || len(ws.Consequences) > 0 || ws.OwnerName != sdk.PrebuildsOwner {
			t.Errorf("prebuilt workspace: %+v", ws)
		}
	}
	counts, err := w.As("ann").TemplatePrebuilds(t.Context(), w.template.ID)
	want := sdk.TemplatePrebuilds{PresetID: w.preset, PresetName: "big", Desired: 2, Running: 2, Eligible: 2, ClaimWaits: []string{}}
	if err != nil || len(counts) != 1 || !reflect.DeepEqual(counts[0], want) {
		t.Errorf("counts: %+v, %v", counts, err)
	}

	ttl := hour
	got, err := w.create("ann", "mine", func(r *sdk.CreateWorkspaceRequest) { r.TTLMillis = &ttl })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(ws sdk.Workspace) bool { return ws.ID == got.ID }) || got.Name != "mine" || got.OwnerName != "ann" || got.IsPrebuild || got.LatestBuild.BuildNumber != 2 {
		t.Fatalf("ann got %s/%s, build %d, prebuilt %t", got.OwnerName, got.Name, got.LatestBuild.BuildNumber, got.IsPrebuild)
	}
	claim := w.Daemon().Next()
	m = claim.GetWorkspaceBuild().GetMetadata()
	state := string(claim.GetWorkspaceBuild().GetState())
	agent, err := uuid.Parse(strings.TrimPrefix(state, "state of "))
	if m.GetPrebuild() || !m.GetPrebuildClaim() || m.GetOwnerName() != "ann" || m.GetWorkspaceName() != "mine" || m.GetOwnerSshPublicKey() == "" || err != nil {
		t.Errorf("the job of the claim gets %v and the state %q", m, state)
	}
	if claim.GetWorkspaceBuild().GetReplacement() != nil {
		t.Error("the job of the claim may not replace everything")
	}
	claim.Finish(coderdtest.Built(state, coderdtest.Resource(agent)))
	w.take(agent)
	ws := w.Get(got.ID)
	if a := ws.LatestBuild.Resources[0].Agents[0]; ws.LatestBuild.Status != sdk.WorkspaceRunning || a.ID != agent || a.Status != sdk.AgentConnected {
		t.Errorf("after the claim: %s, agent %s %s, want %s", ws.LatestBuild.Status, a.ID, a.Status, agent)
	}
	if d := ws.LatestBuild.Deadline; d == nil || time.Until(*d) > time.Hour {
		t.Errorf("the user's workspace stops at %v", d)
	}

	// A restart is a normal build, and the pool is filled again.
	w.run(2)
	w.start()
	w.Build("ann", ws.ID, sdk.TransitionStart)
	if m := w.Daemon().Next().GetWorkspaceBuild().GetMetadata(); m.GetPrebuild() || m.GetPrebuildClaim() {
		t.Errorf("a later start is a claim: %v", m)
	}
	var audited int
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM audit_logs WHERE resource_id = $1 AND action = 'create'
		AND (additional_fields->>'prebuilt' = 'true' OR additional_fields->>'claimed_prebuilt' LIKE 'prebuild-%')`, ws.ID).Scan(&audited); err != nil || audited != 2 {
		t.Errorf("%d audit rows about the creation and the claim, %v", audited, err)
	}
}

// TestPrebuildsOfOldVersions checks that the pool follows the active version, and that a template with prebuilt workspaces can be deleted.
func TestPrebuildsOfOldVersions(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	w.run(1)
	w.start()
	old := w.prebuilt()[0].ID
	v := w.Version(&w.template.ID, prebuilding(&provisionerpb.Prebuilds{Instances: 1}))
	w.run(1) // the version is not active
	if err := w.As("tom").UpdateActiveVersion(t.Context(), w.template.ID, sdk.UpdateActiveVersionRequest{ID: v.ID}); err != nil {
		t.Fatal(err)
	}
	if ws, err := w.create("ann", "late", func(r *sdk.CreateWorkspaceRequest) { r.TemplateVersionID = w.template.ActiveVersionID }); err != nil || ws.ID == old {
		t.Errorf("an old version's workspace was claimed: %v", err)
	}
	w.run(2)
	for range 3 { // ann's workspace, the deletion and the new one
		job := w.Daemon().Next()
		job.Finish(coderdtest.Built("state"))
	}
	got := w.prebuilt()
	if len(got) != 1 || got[0].ID == old || got[0].LatestBuild.TemplateVersionID != v.ID {
		t.Fatalf("prebuilt workspaces after the change: %+v", got)
	}

	if err := w.As("tom").DeleteTemplate(t.Context(), w.template.ID); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a template with workspaces was deleted: %v", err)
	}
	w.Exec("UPDATE workspaces SET deleted_at = now() WHERE name = 'late'")
	if err := w.As("tom").DeleteTemplate(t.Context(), w.template.ID); fault.CodeOf(err) != fault.Conflict || !strings.Contains(fault.As(err).Detail, "Deprecate the template") {
		t.Errorf("a template with prebuilt workspaces was deleted: %v", err)
	}
	reason := "replaced"
	edit(t, w.Server, w.template.ID, sdk.TemplatePolicy{}, func(r *sdk.UpdateTemplateRequest) { r.DeprecationMessage = &reason })
	w.run(1)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	w.run(0)
	if err := w.As("tom").DeleteTemplate(t.Context(), w.template.ID); err != nil {
		t.Error(err)
	}
}

// TestScheduledPrebuilds checks that there are as many prebuilt workspaces as the hour in the schedule's time zone asks for.
func TestScheduledPrebuilds(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1, Timezone: "Asia/Tokyo", Schedule: []*provisionerpb.PrebuildSchedule{
		{Cron: "* 9-17 * * 1-5", Instances: 3}, {Cron: "* 10-11 * * 6", Instances: 0},
	}})
	monday := time.Now().UTC().Truncate(24 * time.Hour)
	for monday.Weekday() != time.Monday {
		monday = monday.Add(24 * time.Hour)
	}
	for _, c := range []struct {
		at   time.Duration // since Monday, 00:00 UTC: 09:00 in Tokyo
		want int
	}{{-time.Second, 1}, {0, 3}, {9*time.Hour - time.Second, 3}, {9 * time.Hour, 1}, {5*24*time.Hour + time.Hour, 0}, {5*24*time.Hour + 3*time.Hour, 1}} {
		before := len(w.prebuilt())
		w.now = monday.Add(c.at)
		schedule(t, w.Server, w.now)
		for range max(c.want-before, before-c.want) { // starts or deletions
			job := w.Daemon().Next()
			job.Finish(coderdtest.Built("state"))
		}
		w.run(c.want)
	}
}

// TestExpiringPrebuilds checks that a prebuilt workspace that is older than its preset allows is replaced.
func TestExpiringPrebuilds(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1, TtlSeconds: 3600})
	w.run(1)
	w.start()
	old := w.prebuilt()[0]
	w.now = old.CreatedAt.Add(time.Hour - time.Second)
	w.run(1)
	if w.prebuilt()[0].LatestBuild.Transition != sdk.TransitionStart {
		t.Fatal("a prebuilt workspace is deleted before it expires")
	}
	w.now = old.CreatedAt.Add(time.Hour + time.Second)
	w.run(2)
	for range 2 { // the deletion and the new one
		w.Daemon().Next().Finish(coderdtest.Built("state"))
	}
	if got := w.prebuilt(); len(got) != 1 || got[0].ID == old.ID {
		t.Errorf("after the expiration: %+v", got)
	}
}

// TestInvalidatedPrebuilds checks that a template's administrator has all prebuilt workspaces replaced, that no user gets an
// old one, and that others may not.
func TestInvalidatedPrebuilds(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	w.run(1)
	w.start()
	old := w.prebuilt()[0]
	if got, err := w.As("ann").InvalidatePrebuilds(t.Context(), w.template.ID); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a user: got %+v, %v", got, err)
	}
	if got, err := w.As("tom").InvalidatePrebuilds(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an unknown template: got %+v, %v", got, err)
	}
	w.run(1)
	got, err := w.As("tom").InvalidatePrebuilds(t.Context(), w.template.ID)
	if err != nil || len(got.Invalidated) != 1 || got.Invalidated[0].TemplateName != w.template.Name {
		t.Fatalf("got %+v, %v", got, err)
	}
	pools, err := w.As("tom").TemplatePrebuilds(t.Context(), w.template.ID)
	if err != nil || len(pools) != 1 || pools[0].Eligible != 0 {
		t.Errorf("the template's page: got %+v, %v", pools, err)
	}
	mine, err := w.create("ann", "mine")
	if err != nil || mine.ID == old.ID {
		t.Errorf("a user gets %s, of the workspaces %s: %v", mine.ID, old.ID, err)
	}
	w.run(2)
	for range 3 { // the user's, the deletion and the new one
		w.Daemon().Next().Finish(coderdtest.Built("state"))
	}
	if got := w.prebuilt(); len(got) != 1 || got[0].ID == old.ID {
		t.Errorf("after the invalidation: %+v", got)
	}
}

// TestFailingPrebuilds checks that a template that cannot be built does not fill the queue, and that an administrator can try again.
func TestFailingPrebuilds(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 3})
	fail := func() {
		t.Helper()
		result := coderdtest.Built("state")
		result.Error = "no capacity"
		w.Daemon().Next().Finish(result)
	}
	explained := func(want string) {
		t.Helper()
		got, err := w.As("ann").TemplatePrebuilds(t.Context(), w.template.ID)
		if err != nil || len(got) != 1 || !strings.Contains(got[0].Explanation, want) {
			t.Errorf("explained with %+v, %v; want %q", got, err, want)
		}
	}
	w.run(3)
	fail()
	fail()
	fail()
	explained("coder prebuilds resume")
	w.run(3) // they are being deleted, and none is created
	for range 3 {
		w.Daemon().Next().Finish(coderdtest.Built(""))
	}
	w.now = w.now.Add(24 * time.Hour)
	w.run(0)

	w.now = time.Now()
	if err := w.As("ann").UpdatePrebuildsSettings(t.Context(), sdk.PrebuildsSettings{}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a member resumed prebuilt workspaces: %v", err)
	}
	for _, paused := range []bool{true, false} {
		if err := w.As("olga").UpdatePrebuildsSettings(t.Context(), sdk.PrebuildsSettings{ReconciliationPaused: paused}); err != nil {
			t.Fatal(err)
		}
		if got, err := w.As("olga").PrebuildsSettings(t.Context()); err != nil || got.ReconciliationPaused != paused {
			t.Errorf("settings: %+v, %v", got, err)
		}
		w.run(map[bool]int{true: 0, false: 3}[paused])
	}
	explained("")
}

// TestImpossiblePrebuilds checks that a preset without a value for a parameter is reported.
func TestImpossiblePrebuilds(t *testing.T) {
	t.Parallel()
	w := &pool{Server: coderdtest.New(t), now: time.Now()}
	found := prebuilding(&provisionerpb.Prebuilds{Instances: 1})
	found.Parameters = append(found.Parameters, &provisionerpb.Parameter{Name: "project", Type: "string", Required: true})
	w.template = w.Template("process", found)
	w.run(0)
	got, err := w.As("ann").TemplatePrebuilds(t.Context(), w.template.ID)
	if err != nil || len(got) != 1 || got[0].Explanation == "" {
		t.Errorf("explained with %+v, %v", got, err)
	}
	w.run(0)
}
