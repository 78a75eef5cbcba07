package workspaces_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// planned returns the result of a prebuilt workspace's build, with a plan of its claim for an agent.
func planned(agent, in uuid.UUID) *provisionerpb.Result {
	r := coderdtest.Resource(in)
	r.Agents[0].Token, r.Agents[0].Env = "", map[string]string{"FIXED": "1"}
	name := &provisionerpb.OwnerText{Parts: []*provisionerpb.OwnerPart{
		{Part: &provisionerpb.OwnerPart_Text{Text: "I am "}},
		{Part: &provisionerpb.OwnerPart_Fact{Fact: provisionerpb.OwnerFact_OWNER_FACT_NAME}},
	}}
	result := coderdtest.Built("state", coderdtest.Resource(agent))
	result.GetWorkspaceBuild().ClaimPlan = &provisionerpb.ClaimPlan{
		Resources: []*provisionerpb.Resource{r}, Variables: []*provisionerpb.OwnerVariable{{AgentId: in[:], Name: "WHO", Value: name}},
	}
	return result
}

// startPlanned finishes the next job, a prebuilt workspace's, with a plan of its claim.
func (w *pool) startPlanned() (agent uuid.UUID) {
	w.T.Helper()
	agent = uuid.New()
	w.Daemon().Next().Finish(planned(agent, agent))
	w.ready(agent)
	return agent
}

// take is the agent's report that it has its new owner's manifest.
func (w *pool) take(agent uuid.UUID) {
	w.T.Helper()
	w.Exec("UPDATE workspace_agents SET awaited_build = NULL WHERE id = $1", agent)
}

func (w *pool) connects(user string, agent uuid.UUID) error {
	return w.Agents.MayConnect(w.T.Context(), rbac.Actor{UserID: w.User(user)}, agent)
}

// TestInstantClaim checks that a claim gives the agents to their new owner before a provisioner has seen its build, at every server, and that no
// user connects before the agent has the owner's manifest.
func TestInstantClaim(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	w.run(1)
	agent := w.startPlanned()
	second := coderdtest.New(t, func(o *coderd.Options) { o.DB, o.States = w.DB, w.States })
	before, err := w.DB.GetAgent(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}

	got, err := w.create("ann", "mine")
	if err != nil || !got.LatestBuild.InstantClaim || !got.LatestBuild.Given() || got.LatestBuild.Status != sdk.WorkspacePending {
		t.Fatalf("claim: %+v, %v", got.LatestBuild, err)
	}
	if a := got.LatestBuild.Agents(); len(a) != 1 || a[0].ID != agent || a[0].Status != sdk.AgentConnecting || a[0].LifecycleState != sdk.LifecycleCreated {
		t.Errorf("agents of the claim: %+v", a)
	}
	a, err := w.DB.GetAgent(t.Context(), agent)
	if err != nil || a.BuildNumber != 2 || !a.Complete || string(a.TokenHash) != string(before.TokenHash) {
		t.Errorf("the agent is of build %d, complete %t, %v; its token must stay", a.BuildNumber, a.Complete, err)
	}
	if string(a.Environment) != `{"WHO": "I am ann", "FIXED": "1"}` {
		t.Errorf("environment: %s", a.Environment)
	}
	if err := w.connects("ann", agent); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("before the agent has its manifest: %v, want unavailable", err)
	}
	w.take(agent)
	for _, server := range []*coderdtest.Server{w.Server, second} {
		for user, want := range map[string]int{"ann": 1, "bob": 0, "olga": 0} {
			ids, err := server.Agents.Reachable(t.Context(), w.User(user), agent)
			if err != nil || len(ids) != want {
				t.Errorf("%s reaches %v, %v; want %d", user, ids, err, want)
			}
		}
		if _, err := server.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); err != nil {
			t.Errorf("the agent comes back before the build has begun: %v", err)
		}
	}
	if err := w.connects("ann", agent); err != nil {
		t.Errorf("the owner cannot connect: %v", err)
	}

	job := w.Daemon().Next()
	if !job.GetWorkspaceBuild().GetMetadata().GetPrebuildClaim() {
		t.Error("the job is no claim")
	}
	// Terraform reports the agents before it has changed them.
	job.Resources(coderdtest.Resource(agent))
	if a, err := w.DB.GetAgent(t.Context(), agent); err != nil || !a.Complete || string(a.Environment) == "{}" {
		t.Errorf("during the build: complete %t, environment %s, %v", a.Complete, a.Environment, err)
	}
	resource := coderdtest.Resource(agent)
	resource.Agents[0].Env = map[string]string{"WHO": "I am ann", "FIXED": "2"}
	job.Finish(coderdtest.Built("state", resource))
	ws := w.Get(got.ID)
	if ws.LatestBuild.Status != sdk.WorkspaceRunning || !ws.LatestBuild.InstantClaim || ws.LatestBuild.Given() {
		t.Errorf("after the build: %s", ws.LatestBuild.Status)
	}
	if a, err := w.DB.GetAgent(t.Context(), agent); err != nil || string(a.Environment) != `{"WHO": "I am ann", "FIXED": "2"}` || a.AwaitedBuild != nil {
		t.Errorf("after the build: %s, awaits %v, %v", a.Environment, a.AwaitedBuild, err)
	}
}

// TestWhyClaimsWait checks that a template's author reads what the last prebuilt workspace found out about claims, also after it was claimed.
func TestWhyClaimsWait(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	shown := func(claims sdk.PrebuildClaims, reasons ...string) {
		t.Helper()
		got, err := w.As("ann").TemplatePrebuilds(t.Context(), w.template.ID)
		if err != nil || len(got) != 1 || got[0].Claims != claims || !slices.Equal(got[0].ClaimWaits, reasons) {
			t.Errorf("%+v, %v; want %q because of %q", got, err, claims, reasons)
		}
	}
	shown("")
	w.run(1)
	agent, waits := uuid.New(), coderdtest.Built("state", coderdtest.Resource(uuid.Nil))
	waits.GetWorkspaceBuild().Resources = []*provisionerpb.Resource{coderdtest.Resource(agent)}
	waits.GetWorkspaceBuild().ClaimWaits = []string{"main.tf:3: a claim changes vm.x", "bad\x00", strings.Repeat("ä", 2500)}
	w.Daemon().Next().Finish(waits)
	w.ready(agent)
	want := []string{"main.tf:3: a claim changes vm.x", "bad\uFFFD", strings.Repeat("ä", 500)}
	shown(sdk.ClaimsWait, want...)
	got, err := w.create("ann", "waiting")
	if err != nil || got.LatestBuild.InstantClaim {
		t.Fatalf("claim: %+v, %v", got.LatestBuild, err)
	}
	shown(sdk.ClaimsWait, want...)
	w.Daemon().Next().Finish(coderdtest.Built("state", coderdtest.Resource(agent)))
	w.run(1)
	w.startPlanned()
	shown(sdk.ClaimsInstant)
}

// TestInstantClaimFails checks that a workspace whose claim does not succeed has failed visibly, and that no user can reach its agent then: also if the
// build was canceled before it began.
func TestInstantClaimFails(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 2})
	w.run(2)
	agents := []uuid.UUID{w.startPlanned(), w.startPlanned()}
	ended := func(name string, ws sdk.Workspace, want sdk.WorkspaceStatus) {
		t.Helper()
		if got := w.Get(ws.ID); got.LatestBuild.Status != want || got.LatestBuild.Given() {
			t.Errorf("%s: %s, want %s", name, got.LatestBuild.Status, want)
		}
		agent := ws.LatestBuild.Agents()[0].ID
		if err := w.connects("ann", agent); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("%s: the owner connects: %v, want conflict", name, err)
		}
		if _, err := w.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); err == nil {
			t.Errorf("%s: the agent's token is valid", name)
		}
	}
	for _, agent := range agents {
		w.take(agent)
	}
	canceled, err := w.create("ann", "canceled")
	if err != nil || !canceled.LatestBuild.InstantClaim {
		t.Fatalf("claim: %v", err)
	}
	if err := w.As("ann").CancelBuild(t.Context(), canceled.LatestBuild.ID); err != nil {
		t.Fatal(err)
	}
	ended("canceled", canceled, sdk.WorkspaceCanceled)

	failed, err := w.create("ann", "failed")
	if err != nil || !failed.LatestBuild.InstantClaim {
		t.Fatalf("claim: %v", err)
	}
	w.take(failed.LatestBuild.Agents()[0].ID)
	result := coderdtest.Built("state", coderdtest.Resource(failed.LatestBuild.Agents()[0].ID))
	result.Error = "the cloud is away"
	w.Daemon().Next().Finish(result)
	ended("failed", failed, sdk.WorkspaceFailed)
	w.Build("ann", failed.ID, sdk.TransitionStart)
	if m := w.Daemon().Next().GetWorkspaceBuild().GetMetadata(); m.GetPrebuildClaim() {
		t.Error("the start after it is a claim")
	}
}

// TestClaimPlanOfOthers checks that a plan that names an agent of another workspace, as a copied state would make a provisioner send, gives that
// agent to no user.
func TestClaimPlanOfOthers(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	victim, theirs := w.Running("bob", "theirs", w.template.ID)
	w.run(1)
	agent := uuid.New()
	w.Daemon().Next().Finish(planned(agent, theirs))
	w.ready(agent)
	got, err := w.create("ann", "mine")
	if err != nil || got.LatestBuild.BuildNumber != 2 || got.LatestBuild.InstantClaim {
		t.Fatalf("claim: build %d, instant %t, %v", got.LatestBuild.BuildNumber, got.LatestBuild.InstantClaim, err)
	}
	if a, err := w.DB.GetAgent(t.Context(), theirs); err != nil || *a.WorkspaceID != victim.ID || string(a.Environment) != "{}" || a.AwaitedBuild != nil {
		t.Errorf("the other workspace's agent: %+v, %v", a, err)
	}
	if err := w.connects("ann", theirs); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("ann connects to bob's agent: %v", err)
	}
	if err := w.connects("ann", agent); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("before the claim's build: %v, want unavailable", err)
	}
}
