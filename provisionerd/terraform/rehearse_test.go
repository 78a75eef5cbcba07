package terraform_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

const rehearsable = `
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
locals {
  author = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  env = {
    FIXED            = "yes"
    GIT_AUTHOR_NAME  = local.author
    GIT_AUTHOR_EMAIL = "${data.coder_workspace_owner.me.email}"
    WHERE            = "/home/${lower(data.coder_workspace_owner.me.name)}/${data.coder_workspace.me.name}"
  }
}
resource "coder_env" "id" {
  agent_id = coder_agent.main.id
  name     = "OWNER_ID"
  value    = data.coder_workspace_owner.me.id
}
resource "coder_script" "start" {
  agent_id     = coder_agent.main.id
  display_name = "Start"
  run_on_start = true
  script       = "echo ready"
}
resource "terraform_data" "machine" {
  count            = data.coder_workspace.me.start_count
  input            = "coder-${data.coder_workspace_owner.me.name}"
  triggers_replace = [coder_agent.main.token]
  lifecycle {
    ignore_changes = [input]
  }
}
resource "coder_metadata" "machine" {
  count       = data.coder_workspace.me.start_count
  resource_id = terraform_data.machine[0].id
  item {
    key   = "owner"
    value = data.coder_workspace_owner.me.name
  }
}
`

// TestRehearsal checks that the build of a prebuilt workspace tells what a claim will make of its agents, for any owner, and that this is what the
// claim's build makes.
func TestRehearsal(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, files(rehearsable))
	m := metadata()
	m.Prebuild, m.OwnerName, m.OwnerFullName, m.WorkspaceName = true, "prebuilds", "", "prebuild-x"
	first := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m}))
	plan := first.GetClaimPlan()
	if plan == nil {
		t.Fatalf("no plan of the claim:\n%s", j.sink.text())
	}
	if n := len(plan.GetResources()); n != 1 || len(plan.GetResources()[0].GetAgents()) != 1 {
		t.Fatalf("resources: %v", plan.GetResources())
	}
	if token := plan.GetResources()[0].GetAgents()[0].GetToken(); token != "" {
		t.Error("the plan has the agent's token")
	}
	for _, full := range []string{"", "Ann Ng"} {
		claim := metadata()
		claim.PrebuildClaim, claim.OwnerName, claim.OwnerFullName, claim.OwnerEmail, claim.WorkspaceName = true, "Ann", full, "ann@example.com", "mine"
		built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: claim, State: first.GetState()}))
		if built.GetClaimPlan() != nil {
			t.Error("the claim's build has a plan of a claim")
		}
		want := built.GetResources()[0].GetAgents()[0]
		got := plan.GetResources()[0].GetAgents()[0]
		env := maps.Clone(got.GetEnv())
		for _, v := range plan.GetVariables() {
			value, ok := v.GetValue().Value(provisionerpb.OwnerFacts(claim, ownerID.String()))
			if !ok {
				t.Fatalf("%s has no value", v.GetName())
			}
			env[v.GetName()] = value
		}
		if !maps.Equal(env, want.GetEnv()) || len(plan.GetVariables()) != 4 {
			t.Errorf("env %v with %d variables of the owner, the build makes %v", env, len(plan.GetVariables()), want.GetEnv())
		}
		if string(got.GetId()) != string(want.GetId()) || string(got.GetScripts()[0].GetId()) != string(want.GetScripts()[0].GetId()) {
			t.Error("the agent or its script has another id than in the claim's build")
		}
	}
}

// TestIgnoredUntilStart checks that what a claim leaves as it is follows at the next start.
func TestIgnoredUntilStart(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, files(rehearsable))
	m := metadata()
	m.Prebuild, m.OwnerName = true, "prebuilds"
	first := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m}))
	m = metadata()
	m.PrebuildClaim = true
	claim := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m, State: first.GetState()}))
	later := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: metadata(), State: claim.GetState()}))
	for of, c := range map[string]struct {
		state []byte
		want  string
	}{"claim": {claim.GetState(), "coder-prebuilds"}, "start": {later.GetState(), "coder-ann"}} {
		if !strings.Contains(string(c.state), `"value": "`+c.want+`"`) {
			t.Errorf("after the %s the machine is not of %s:\n%s", of, c.want, c.state)
		}
	}
}

// TestDockerStarterIsGivenAtOnce checks that a claim of the starter "docker" does not wait for its build, as far as its agent decides that.
func TestDockerStarterIsGivenAtOnce(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := starter(t, "docker")
	template["main.tf"] = withoutDocker(t, template["main.tf"])
	j := newTrial(t, template)
	m := metadata()
	m.Prebuild = true
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m}))
	if plan := built.GetClaimPlan(); len(plan.GetVariables()) != 4 {
		t.Errorf("the plan of the claim has the variables %v:\n%s", plan.GetVariables(), j.sink.text())
	}
}

// TestNoRehearsal checks that a template whose claim changes more than variables of agents, or in a way that cannot be followed, has no plan of a
// claim, and that the build says why.
func TestNoRehearsal(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const head = `
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  %
}
`
	for name, c := range map[string]struct{ agent, rest, want string }{
		"machine is replaced": {"", `resource "terraform_data" "m" { triggers_replace = [data.coder_workspace_owner.me.name] }`, "a claim changes terraform_data.m"},
		"machine changes":     {"", `resource "terraform_data" "m" { input = data.coder_workspace_owner.me.email }`, "a claim changes terraform_data.m"},
		"machine depends on who": {
			"", `resource "terraform_data" "m" { input = data.coder_workspace_owner.me.name == "ann" ? 1 : 2 }`, "terraform_data.m",
		},
		"is_prebuild":  {"", `resource "terraform_data" "m" { input = data.coder_workspace.me.is_prebuild }`, "a claim changes terraform_data.m"},
		"script":       {`startup_script = "hello ${data.coder_workspace_owner.me.name}"`, "", "startup_script of coder_agent.main depends on the owner"},
		"hashed":       {`env = { A = sha256(data.coder_workspace_owner.me.name) }`, "", "env of coder_agent.main depends on the owner: A"},
		"chosen":       {`env = { A = data.coder_workspace_owner.me.name == "ann" ? "1" : "2" }`, "", "env of coder_agent.main depends on the owner: A"},
		"token":        {`env = { A = data.coder_workspace_owner.me.session_token }`, "", "env of coder_agent.main depends on the owner: A"},
		"whole object": {`env = merge({ A = data.coder_workspace_owner.me.name }, {})`, "", "env of coder_agent.main depends on the owner"},
		"unmarked":     {`env = { A = nonsensitive(data.coder_workspace_owner.me.name) }`, "", "nonsensitive"},
		"shape": {"", `resource "coder_app" "a" {
  count    = data.coder_workspace_owner.me.name == "ann" ? 1 : 0
  agent_id = coder_agent.main.id
  slug     = "a"
  url      = "http://localhost:1"
}`, "how many coder_app.a there are may depend on the owner"},
		"app": {"", `resource "coder_app" "a" {
  agent_id = coder_agent.main.id
  slug     = "a"
  url      = "http://localhost:1/${data.coder_workspace_owner.me.name}"
}`, "url of coder_app.a depends on the owner"},
		"parameter": {`env = { A = data.coder_parameter.p.value }`, `data "coder_parameter" "p" {
  name    = "p"
  default = data.coder_workspace_owner.me.name
}`, "data.coder_parameter.p may depend on the owner"},
		"joined": {`env = { A = data.coder_workspace_owner.me.name }`, `resource "coder_env" "a" {
  agent_id       = coder_agent.main.id
  name           = "A"
  value          = "more"
  merge_strategy = "append"
}`, "several parts"},
		"unknown": {`env = { A = timestamp() }`, "", "in a way that only its build can tell"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, files(strings.Replace(head, "%", c.agent, 1)+c.rest))
			m := metadata()
			m.Prebuild = true
			built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m}))
			said := j.sink.text()
			if built.GetClaimPlan() != nil || !strings.Contains(said, c.want) || !strings.Contains(said, "waits for a whole build") {
				t.Errorf("want no plan because of %q, got %v:\n%s", c.want, built.GetClaimPlan(), said)
			}
		})
	}
}
