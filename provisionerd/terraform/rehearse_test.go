package terraform_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
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

var (
	unowned = map[string]string{"name": "coder-" + workspaceID.String(), "labels": "prebuilds"}
	owned   = map[string]string{"name": "coder-ann-dev", "labels": "ann"}
)

var claimsOfStarters = map[string]struct {
	provider  string
	variables []*provisionerpb.VariableValue
	waits     string            // why a claim waits for its build; "" if it does not
	prebuilt  map[string]string // attributes of the machine and what it runs with, as long as it has no owner of its own, and after a claim
	started   map[string]string // after the next start
}{
	"docker": {
		provider: "kreuzwerker/docker",
		prebuilt: map[string]string{"name": "coder-" + workspaceID.String(), "hostname": "workspace", "labels": "prebuilds"},
		started:  map[string]string{"name": "coder-ann-dev", "hostname": "dev", "labels": "ann"},
	},
	"dind":           {provider: "kreuzwerker/docker", prebuilt: unowned, started: owned},
	"docker-compose": {provider: "kreuzwerker/docker", prebuilt: unowned, started: owned},
	"gpu":            {provider: "kreuzwerker/docker", prebuilt: unowned, started: owned},
	"jupyterlab":     {provider: "kreuzwerker/docker", prebuilt: unowned, started: owned},
	"vscode-web":     {provider: "kreuzwerker/docker", prebuilt: unowned, started: owned},
	"vscode": {
		provider: "kreuzwerker/docker",
		variables: []*provisionerpb.VariableValue{
			{Name: "vscode_archive", Value: "code-server-4.99.4-linux-amd64.tar.gz"}, {Name: "vscode_sha256", Value: strings.Repeat("0a", 32)},
		},
		prebuilt: unowned, started: owned,
	},
	"devcontainer": {
		provider: "kreuzwerker/docker", waits: "the agent main has dev containers, which it starts again for the owner",
		prebuilt: map[string]string{"name": "coder-" + workspaceID.String(), "hostname": "workspace", "labels": "prebuilds"},
		started:  map[string]string{"name": "coder-ann-dev", "hostname": "dev", "labels": "ann"},
	},
	"kubernetes": {
		provider:  "hashicorp/kubernetes",
		variables: []*provisionerpb.VariableValue{{Name: "namespace", Value: "workspaces"}},
		prebuilt:  map[string]string{"metadata": `"coder.com/workspace-id": "` + workspaceID.String() + `"`},
		started:   map[string]string{"metadata": `"coder.com/owner": "ann"`},
	},
}

// TestClaimsOfStarters checks which starters' claims do not wait for their build, and that no claim makes a new machine: what it shows of its owner
// follows at the next start. The providers are stand-ins.
func TestClaimsOfStarters(t *testing.T) {
	for name, c := range claimsOfStarters {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TF_CLI_CONFIG_FILE", mirrorProvider(t, c.provider))
			e := newExecutor(t)
			j := newTrial(t, starter(t, name))
			state := []byte(nil)
			build := func(transition provisionerpb.Transition, change func(m *provisionerpb.Metadata)) *provisionerpb.BuildResult {
				t.Helper()
				m := metadata()
				change(m)
				built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: transition, Metadata: m, State: state, Variables: c.variables}))
				state = built.GetState()
				return built
			}
			built := build(start, func(m *provisionerpb.Metadata) {
				m.Prebuild, m.OwnerName, m.WorkspaceName = true, "prebuilds", "prebuild-x"
			})
			machine := attribute(t, state, "workspace", "id")
			said := j.sink.text()
			checkStarter(t, said, built)
			if reasons := strings.Join(built.GetClaimWaits(), "\n"); reasons != c.waits || !strings.Contains(said, c.waits) {
				t.Errorf("claims wait because of %q, want %q:\n%s", reasons, c.waits, said)
			}
			if plan := built.GetClaimPlan(); (c.waits == "") != (len(plan.GetVariables()) == 4) {
				t.Errorf("the plan of the claim has the variables %v:\n%s", plan.GetVariables(), said)
			}
			check := func(when string, want map[string]string) {
				t.Helper()
				for attr, text := range want {
					if got := attributeText(t, state, "workspace", attr); !strings.Contains(got, text) {
						t.Errorf("%s: %s is %s, want %s", when, attr, got, text)
					}
				}
			}
			check("prebuilt", c.prebuilt)
			build(start, func(m *provisionerpb.Metadata) { m.PrebuildClaim = true })
			if got := attribute(t, state, "workspace", "id"); got != machine {
				t.Error("the claim made a new machine")
			}
			check("claimed", c.prebuilt)
			if strings.Contains(attributeText(t, state, "home", "metadata"), "prebuilds") {
				t.Error("the home has the name of the account that owns prebuilt workspaces")
			}
			home := attributeText(t, state, "home", "id")
			none := func(*provisionerpb.Metadata) {}
			build(stop, none)
			build(start, none)
			check("started again", c.started)
			if got := attributeText(t, state, "home", "id"); got != home {
				t.Error("the start made a new home")
			}
		})
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
		"machine is replaced": {"", `resource "terraform_data" "m" { triggers_replace = [data.coder_workspace_owner.me.name] }`, "main.tf:14: a claim replaces terraform_data.m: it would differ in triggers_replace[0]"},
		"machine changes": {
			"", `resource "terraform_data" "m" { input = data.coder_workspace_owner.me.email }`, "main.tf:14: a claim changes terraform_data.m: it would differ in input",
		},
		"machine depends on who": {
			"", `resource "terraform_data" "m" { input = data.coder_workspace_owner.me.name == "ann" ? 1 : 2 }`, "it would differ in input",
		},
		"is_prebuild":  {"", `resource "terraform_data" "m" { input = data.coder_workspace.me.is_prebuild }`, "a claim changes terraform_data.m: it would differ in input"},
		"script":       {`startup_script = "hello ${data.coder_workspace_owner.me.name}"`, "", "startup_script of coder_agent.main depends on the owner"},
		"hashed":       {`env = { A = sha256(data.coder_workspace_owner.me.name) }`, "", "env.A of coder_agent.main depends on the owner: its expression"},
		"chosen":       {`env = { A = data.coder_workspace_owner.me.name == "ann" ? "1" : "2" }`, "", "env.A of coder_agent.main depends on the owner: its expression"},
		"token":        {`env = { A = data.coder_workspace_owner.me.session_token }`, "", "env.A of coder_agent.main depends on the owner: its expression"},
		"whole object": {`env = merge({ A = data.coder_workspace_owner.me.name }, {})`, "", "env.A of coder_agent.main depends on the owner"},
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
			reasons := strings.Join(built.GetClaimWaits(), "\n")
			if built.GetClaimPlan() != nil || !strings.Contains(reasons, c.want) || !strings.Contains(said, c.want) || !strings.Contains(said, "waits for a whole build") {
				t.Errorf("want no plan because of %q, got %v because of %q:\n%s", c.want, built.GetClaimPlan(), reasons, said)
			}
		})
	}
}

// TestAllReasons checks that a template's author reads at once all that makes claims wait, each with its place.
func TestAllReasons(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, files(`
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
resource "coder_agent" "main" {
  os             = "linux"
  arch           = "amd64"
  startup_script = "hello ${data.coder_workspace_owner.me.name}"
  env = {
    A = upper(data.coder_workspace_owner.me.name)
    B = sha256(data.coder_workspace_owner.me.name)
  }
}
resource "terraform_data" "machine" {
  input = {
    image    = "x"
    "owner's" = data.coder_workspace_owner.me.name
  }
}
`))
	m := metadata()
	m.Prebuild = true
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m}))
	const text = "its expression is more than texts, names and addresses of the owner, coalesce and lower"
	want := []string{
		"main.tf:9: env.A of coder_agent.main depends on the owner: " + text,
		"main.tf:9: env.B of coder_agent.main depends on the owner: " + text,
		"main.tf:9: startup_script of coder_agent.main depends on the owner: only variables of agents may, and what coder_metadata shows",
		`main.tf:18: a claim changes terraform_data.machine: it would differ in input["owner's"]`,
	}
	if got := built.GetClaimWaits(); !slices.Equal(got, want) {
		t.Errorf("claims wait because of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// checkStarter checks what a build of a starter says, and its start scripts.
func checkStarter(t *testing.T, said string, built *provisionerpb.BuildResult) {
	t.Helper()
	if strings.Contains(said, "no effect") {
		t.Errorf("the starter sets what has no effect:\n%s", said)
	}
	for _, script := range agentsOf(built.GetResources())[0].GetScripts() {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", script.GetScript()).CombinedOutput(); err != nil {
			t.Errorf("a start script: %v %s\n%s", err, out, script.GetScript())
		}
	}
}
