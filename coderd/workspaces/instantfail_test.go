package workspaces_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// sibling returns another server of the pool's database.
func (w *pool) sibling() *coderdtest.Server {
	w.T.Helper()
	return coderdtest.New(w.T, func(o *coderd.Options) { o.DB, o.States = w.DB, w.States })
}

// claimable returns a pool with one workspace, whose claims are instant, the workspace's agent, and another server of the database.
func claimable(t *testing.T) (w *pool, agent uuid.UUID, second *coderdtest.Server) {
	t.Helper()
	w = newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	w.run(1)
	return w, w.startPlanned(), w.sibling()
}

// belongs checks at every server that an agent's owner alone may connect to it, and only if its own token is valid; "" is the pool.
func (w *pool) belongs(agent uuid.UUID, owner string, admitted bool, servers ...*coderdtest.Server) {
	w.T.Helper()
	for i, server := range servers {
		for _, user := range []string{"ann", "bob", "olga"} {
			err := server.Agents.MayConnect(w.T.Context(), rbac.Actor{UserID: w.User(user)}, agent)
			if want := user == owner && admitted; (err == nil) != want {
				w.T.Errorf("server %d: %s connects: %v, want %t", i, user, err, want)
			}
		}
		if _, err := server.Agents.AuthenticateAgent(w.T.Context(), coderdtest.Token(agent)); (err == nil) != admitted {
			w.T.Errorf("server %d: the agent's token: %v, want it valid: %t", i, err, admitted)
		}
	}
}

// claim makes ann claim the pool's only workspace, whose agent has its manifest then.
func (w *pool) claim(agent uuid.UUID) sdk.Workspace {
	w.T.Helper()
	got, err := w.create("ann", "mine")
	if err != nil || !got.LatestBuild.InstantClaim {
		w.T.Fatalf("claim: %+v, %v", got.LatestBuild, err)
	}
	w.take(agent)
	return got
}

// finishes runs the build of ann's claim with a new provisioner at a server: the agent is hers before and after it, at all servers that live.
func (w *pool) finishes(got sdk.Workspace, agent uuid.UUID, at *coderdtest.Server, living ...*coderdtest.Server) {
	w.T.Helper()
	job := w.Daemon().Replace(at).Next()
	if !job.GetWorkspaceBuild().GetMetadata().GetPrebuildClaim() {
		w.T.Error("the job is no claim")
	}
	w.belongs(agent, "ann", true, living...)
	job.Finish(coderdtest.Built("state", coderdtest.Resource(agent)))
	w.belongs(agent, "ann", true, living...)
	ws, err := at.As("ann").Workspace(w.T.Context(), got.ID)
	if err != nil || ws.LatestBuild.Status != sdk.WorkspaceRunning {
		w.T.Errorf("after the build: %s, %v", ws.LatestBuild.Status, err)
	}
}

// TestInstantClaimSurvivesItsServer ends the server after the claim's transaction, before its build has a provisioner: another server runs the build,
// and the agent belongs to its owner all the time.
func TestInstantClaimSurvivesItsServer(t *testing.T) {
	t.Parallel()
	w, agent, second := claimable(t)
	got := w.claim(agent)
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.belongs(agent, "ann", true, second)
	w.finishes(got, agent, second, second)
}

// TestInstantClaimLosesItsProvisioner kills the provisioner while it runs the claim's build: the workspace has failed, its agent is no user's any more,
// and the owner can start it again.
func TestInstantClaimLosesItsProvisioner(t *testing.T) {
	t.Parallel()
	for name, began := range map[string]func(*coderdtest.Job, uuid.UUID){
		"accepted":        func(j *coderdtest.Job, _ uuid.UUID) { j.Changes() },
		"reported agents": func(j *coderdtest.Job, agent uuid.UUID) { j.Resources(coderdtest.Resource(agent)) },
		"checkpoint":      func(j *coderdtest.Job, _ uuid.UUID) { j.Checkpoint("half") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, agent, second := claimable(t)
			got := w.claim(agent)
			began(w.Daemon().Next(), agent)
			w.belongs(agent, "ann", true, w.Server, second)
			next := w.Daemon().Replace(second)
			next.Ready()
			testwait.Until(t, "the lost build has ended", w.Ended(got.ID))
			if b := w.Get(got.ID).LatestBuild; b.Status != sdk.WorkspaceFailed || b.Given() {
				t.Errorf("the build is %s, given %t", b.Status, b.Given())
			}
			w.belongs(agent, "ann", false, w.Server, second)
			w.Build("ann", got.ID, sdk.TransitionStart)
			job := next.Next()
			if job.GetWorkspaceBuild().GetMetadata().GetPrebuildClaim() {
				t.Error("the start after it is a claim")
			}
			job.Finish(coderdtest.Built("again", coderdtest.Resource(agent)))
			w.belongs(agent, "ann", true, w.Server, second)
		})
	}
}

// TestInstantClaimIsOfferedAgain kills the provisioner before it accepts the claim's build: the next one gets it.
func TestInstantClaimIsOfferedAgain(t *testing.T) {
	t.Parallel()
	w, agent, second := claimable(t)
	got := w.claim(agent)
	w.Daemon().Ignore()
	w.belongs(agent, "ann", true, w.Server, second)
	w.finishes(got, agent, second, w.Server, second)
}

// TestClaimThatDiesInItsTransaction ends the server's connection to the database in the middle of the claim's transaction: the agent stays the pool's, and
// the next claim gets it.
func TestClaimThatDiesInItsTransaction(t *testing.T) {
	t.Parallel()
	w, agent, second := claimable(t)
	var pool uuid.UUID
	if a, err := w.DB.GetAgent(t.Context(), agent); err != nil {
		t.Fatal(err)
	} else {
		pool = *a.WorkspaceID
	}
	// The claim waits for the agent's row, after it has changed the workspace's owner.
	tx, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM workspace_agents WHERE id = $1 FOR UPDATE", agent); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := w.create("ann", "mine")
		ended <- err
	}()
	var waiting int
	testwait.Until(t, "the claim waits", func() error {
		return w.DB.Pool.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1`).Scan(&waiting)
	})
	w.Exec("SELECT pg_terminate_backend($1)", waiting)
	if err := tx.Rollback(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		t.Fatal(err)
	}
	err = <-ended
	a, lookup := w.DB.GetAgent(t.Context(), agent)
	if lookup != nil || *a.WorkspaceID != pool {
		t.Fatalf("the agent: %+v, %v", a, lookup)
	}
	if err != nil { // not repeated
		if fault.CodeOf(err) != fault.Unavailable && fault.CodeOf(err) != fault.Internal {
			t.Errorf("the interrupted claim: %v", err)
		}
		w.belongs(agent, "", true, w.Server, second)
		if _, err := w.create("ann", "mine"); err != nil {
			t.Fatal(err)
		}
	}
	w.take(agent)
	w.belongs(agent, "ann", true, w.Server, second)
}

// TestOneWorkspaceTwoClaims lets two users claim the pool's only workspace at two servers at once: it has one owner, and the other user gets a
// workspace that is built.
func TestOneWorkspaceTwoClaims(t *testing.T) {
	t.Parallel()
	w, agent, second := claimable(t)
	w.User("ann")
	w.User("bob")
	got := map[string]sdk.Workspace{}
	type made struct {
		user string
		ws   sdk.Workspace
		err  error
	}
	results := make(chan made, 2)
	for user, server := range map[string]*coderdtest.Server{"ann": w.Server, "bob": second} {
		go func() {
			ws, err := server.As(user).CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: w.template.ID, Name: "mine", TemplateVersionPresetID: w.preset})
			results <- made{user, ws, err}
		}()
	}
	for range 2 {
		r := <-results
		if r.err != nil {
			t.Fatalf("%s: %v", r.user, r.err)
		}
		got[r.user] = r.ws
	}
	winner := "ann"
	if got["bob"].LatestBuild.InstantClaim {
		winner = "bob"
	}
	if got["ann"].LatestBuild.InstantClaim == got["bob"].LatestBuild.InstantClaim {
		t.Fatalf("instant: ann %t, bob %t", got["ann"].LatestBuild.InstantClaim, got["bob"].LatestBuild.InstantClaim)
	}
	w.take(agent)
	w.belongs(agent, winner, true, w.Server, second)
}
