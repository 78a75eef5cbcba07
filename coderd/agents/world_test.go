package agents_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeMesh reaches agents by dial, and reports revoked agents.
type fakeMesh struct {
	dial    func(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
	revoked chan<- uuid.UUID
	away    func() time.Duration // since the coordinator heard from the agent; nil: it knows none
}

func (m *fakeMesh) LastSeen(uuid.UUID) time.Time {
	if m.away == nil {
		return time.Time{}
	}
	return time.Now().Add(-m.away())
}

func (m *fakeMesh) DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
	return m.dial(ctx, agent, port)
}
func (*fakeMesh) AgentContested(uuid.UUID) bool { return false }
func (*fakeMesh) AgentArrived(uuid.UUID) func() { return func() {} }
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

// fakeSecrets gives every user one secret.
type fakeSecrets struct{}

func (fakeSecrets) SecretsOf(_ context.Context, user uuid.UUID) ([]agents.Secret, error) {
	return []agents.Secret{{Name: "key", EnvName: "KEY", FilePath: "~/key", Value: secret.Token("secret of " + user.String())}}, nil
}

// world is a server with two users, and the options for a test's own agents service on its database.
type world struct {
	*coderdtest.Server
	opts         agents.Options
	owner, other uuid.UUID // ann and bob
	log          *slog.Logger
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: coderdtest.New(t), log: slog.New(slog.DiscardHandler)}
	w.owner, w.other = w.User("ann"), w.User("bob")
	w.opts = agents.Options{DB: w.DB, PubSub: w.PubSub, Logger: w.log, AccessURL: "http://127.0.0.1:3000"}
	return w
}

func (w *world) store(b coderdtest.Build, final bool, resources ...*provisionerpb.Resource) []uuid.UUID {
	w.T.Helper()
	var ids []uuid.UUID
	err := w.DB.InTx(w.T.Context(), func(q *dbsqlc.Queries) error {
		var err error
		ids, err = agents.Store(w.T.Context(), q, agents.Batch{
			JobID: b.Job, Transition: b.Transition, WorkspaceID: b.Workspace, BuildNumber: b.Number, Resources: resources, Final: final,
		})
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return ids
}

func (w *world) revoke(workspace uuid.UUID, kept ...uuid.UUID) {
	w.T.Helper()
	if err := w.DB.InTx(w.T.Context(), func(q *dbsqlc.Queries) error { return agents.Revoke(w.T.Context(), q, workspace, kept) }); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) agent(id uuid.UUID) dbsqlc.WorkspaceAgent {
	w.T.Helper()
	a, err := w.DB.GetAgent(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return a
}

func (w *world) status(id uuid.UUID) sdk.AgentStatus {
	w.T.Helper()
	a, err := w.DB.GetAgentWithStatus(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return sdk.AgentStatus(a.Status)
}

// resource returns a resource with one agent, whose token is its name's.
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
