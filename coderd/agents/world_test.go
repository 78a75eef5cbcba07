package agents_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/agents"
	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/pubsub"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeMesh reaches agents by dial, and tells of revoked ones.
type fakeMesh struct {
	dial    func(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
	revoked chan<- uuid.UUID
}

func (m *fakeMesh) DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
	return m.dial(ctx, agent, port)
}
func (*fakeMesh) AgentContested(uuid.UUID) bool { return false }
func (m *fakeMesh) RevokeAgents(ids ...uuid.UUID) {
	for _, id := range ids {
		if m.revoked != nil {
			m.revoked <- id
		}
	}
}

// fakeAccounts are users with keys, all of them active unless there is an error.
type fakeAccounts struct{ err *error }

func (a fakeAccounts) Active(context.Context, uuid.UUID) error {
	if a.err == nil {
		return nil
	}
	return *a.err
}

func (fakeAccounts) GitSSHKey(_ context.Context, user uuid.UUID) (string, secret.Token, error) {
	return "public of " + user.String(), secret.Token("private of " + user.String()), nil
}

// world is a database with two users and a template version, and an agents' service over it.
type world struct {
	t                       *testing.T
	db                      *database.DB
	pubsub                  pubsub.PubSub
	opts                    agents.Options
	org, owner, other       uuid.UUID
	file, template, version uuid.UUID
	log                     *slog.Logger
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, db: dbtest.New(t), org: uuid.New(), owner: uuid.New(), other: uuid.New(), file: uuid.New(), template: uuid.New(), version: uuid.New(),
		log: slog.New(slog.DiscardHandler),
	}
	ps := pubsub.NewPostgres(w.db, w.log)
	t.Cleanup(func() { ps.Close() })
	w.pubsub = ps
	w.opts = agents.Options{DB: w.db, PubSub: ps, Logger: w.log, AccessURL: "http://127.0.0.1:3000"}
	w.exec(`INSERT INTO organizations (id, name, is_default) SELECT $1, 'world', NOT EXISTS (SELECT 1 FROM organizations WHERE is_default)`, w.org)
	for name, id := range map[string]uuid.UUID{"ann": w.owner, "bob": w.other} {
		w.exec(`INSERT INTO users (id, username, email) VALUES ($1, $2, $2 || '@example.com')`, id, name)
	}
	w.exec(`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, 'x', 'application/x-tar', '', $2)`, w.file, w.owner)
	job := w.job(sdk.JobTemplateImport, sdk.JobSucceeded)
	w.exec(`INSERT INTO template_versions (id, organization_id, job_id, name, created_by) VALUES ($1, $2, $3, 'v1', $4)`, w.version, w.org, job, w.owner)
	w.exec(`INSERT INTO templates (id, organization_id, name, active_version_id, created_by) VALUES ($1, $2, 'process', $3, $4)`, w.template, w.org, w.version, w.owner)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) job(kind sdk.JobType, status sdk.JobStatus) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	w.exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
		VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $6 <> 'pending' THEN now() END, CASE WHEN $7 THEN now() END)`,
		id, w.org, w.owner, string(kind), w.file, string(status), status.Ended())
	return id
}

// workspace makes a workspace without builds.
func (w *world) workspace(owner uuid.UUID, name string) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	w.exec(`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) VALUES ($1, $2, $3, $4, $5)`, id, w.org, owner, w.template, name)
	return id
}

type build struct {
	workspace, job uuid.UUID
	number         int32
	transition     sdk.Transition
}

func (w *world) build(workspace uuid.UUID, transition sdk.Transition, status sdk.JobStatus) build {
	w.t.Helper()
	b := build{workspace: workspace, job: w.job(sdk.JobWorkspaceBuild, status), transition: transition}
	if err := w.db.Pool.QueryRow(w.t.Context(), `INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id)
		VALUES ($1, $2, 1 + (SELECT coalesce(max(build_number), 0) FROM workspace_builds WHERE workspace_id = $2), $3, $4, $5, $6) RETURNING build_number`,
		uuid.New(), workspace, w.version, b.job, string(transition), w.owner).Scan(&b.number); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) status(b build, status sdk.JobStatus) {
	w.t.Helper()
	w.exec(`UPDATE provisioner_jobs SET status = $2, started_at = coalesce(started_at, now()), completed_at = CASE WHEN $3 THEN now() END WHERE id = $1`,
		b.job, string(status), status.Ended())
}

func (w *world) store(b build, final bool, resources ...*provisionerpb.Resource) []uuid.UUID {
	w.t.Helper()
	var ids []uuid.UUID
	err := w.db.InTx(w.t.Context(), func(q *dbsqlc.Queries) error {
		var err error
		ids, err = agents.Store(w.t.Context(), q, w.log, agents.Batch{
			JobID: b.job, Transition: b.transition, WorkspaceID: b.workspace, BuildNumber: b.number, Resources: resources, Final: final,
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ids
}

func (w *world) revoke(workspace uuid.UUID, kept ...uuid.UUID) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), func(q *dbsqlc.Queries) error { return agents.Revoke(w.t.Context(), q, workspace, kept) }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) agent(id uuid.UUID) dbsqlc.WorkspaceAgent {
	w.t.Helper()
	a, err := w.db.GetAgent(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// resource is one with an agent in it, whose token is its name's.
func resource(agent uuid.UUID, edit ...func(*provisionerpb.Agent)) *provisionerpb.Resource {
	a := &provisionerpb.Agent{
		Id: agent[:], Name: "main", Token: "token-" + agent.String(), Os: "linux", Arch: "amd64", Env: map[string]string{"A": "1"},
		ConnectionTimeoutSeconds: 120, StartupScriptBehavior: "blocking", DisplayApps: []string{"web_terminal"},
		Scripts: []*provisionerpb.Script{{DisplayName: "Startup Script", Script: "true", RunOnStart: true}},
		Apps:    []*provisionerpb.App{{Slug: "code", DisplayName: "Code", Url: "http://localhost:8080", Subdomain: true, Share: "owner", HealthcheckUrl: "http://localhost:8080/healthz"}},
	}
	for _, e := range edit {
		e(a)
	}
	return &provisionerpb.Resource{Name: "dev", Type: "terraform_data", DailyCost: 3, Metadata: []*provisionerpb.ResourceMetadata{{Key: "k", Value: "v"}}, Agents: []*provisionerpb.Agent{a}}
}

// await waits until done says so. It is for what another goroutine brings about; it fails with the test's own deadline.
func await(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: did not come", what)
		case <-tick.C:
		}
	}
}
