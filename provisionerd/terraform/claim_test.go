package terraform_test

import (
	"encoding/json"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const claimable = `
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  env  = { OWNER = data.coder_workspace_owner.me.name }
  metadata {
    key          = "owner"
    script       = "echo ${data.coder_workspace_owner.me.name}"
    interval     = 10
    timeout      = 1
  }
}
resource "coder_agent" "second" {
  os   = "linux"
  arch = "amd64"
}
resource "coder_app" "web" {
  agent_id = coder_agent.main.id
  slug     = "web"
  url      = "http://localhost:1"
}
resource "terraform_data" "machine" {
  count            = data.coder_workspace.me.start_count
  triggers_replace = [coder_agent.main.token, coder_agent.main.init_script, coder_agent.main.id, coder_agent.second.token]
}
resource "terraform_data" "facts" {
  input = "${data.coder_workspace.me.prebuild_count} ${data.coder_workspace.me.is_prebuild} ${data.coder_workspace.me.is_prebuild_claim}"
}
`

// TestClaimKeepsAgents checks that the build that gives a prebuilt workspace to its user keeps agents, their tokens and the machines that have them,
// although the agents' attributes depend on the owner; and that the next start does not.
func TestClaimKeepsAgents(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, files(claimable))
	build := func(state []byte, owner string, edit func(*provisionerpb.Metadata)) (*provisionerpb.BuildResult, map[string]map[string]any) {
		t.Helper()
		m := metadata()
		m.OwnerName = owner
		edit(m)
		built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m, State: state}))
		var s struct {
			Resources []struct {
				Mode, Type, Name string
				Instances        []struct{ Attributes map[string]any }
			}
		}
		if err := json.Unmarshal(built.GetState(), &s); err != nil {
			t.Fatal(err)
		}
		found := map[string]map[string]any{}
		for _, r := range s.Resources {
			if r.Mode == "managed" {
				found[r.Type+"."+r.Name] = r.Instances[0].Attributes
			}
		}
		return built, found
	}
	first, before := build(nil, "prebuilds", func(m *provisionerpb.Metadata) { m.Prebuild = true })
	second, after := build(first.GetState(), "ann", func(m *provisionerpb.Metadata) { m.PrebuildClaim = true })
	for _, attribute := range [][2]string{
		{"coder_agent.main", "id"}, {"coder_agent.main", "token"}, {"coder_agent.main", "init_script"}, {"coder_agent.second", "id"}, {"coder_agent.second", "token"},
		{"coder_app.web", "id"}, {"terraform_data.machine", "id"},
	} {
		b, a := before[attribute[0]][attribute[1]], after[attribute[0]][attribute[1]]
		if b != a || b == "" || b == nil {
			t.Errorf("%s.%s: %v before the claim, %v after", attribute[0], attribute[1], b, a)
		}
	}
	if before["coder_agent.main"]["token"] == before["coder_agent.second"]["token"] {
		t.Error("two agents have one token")
	}
	var agents []*provisionerpb.Agent
	for _, r := range second.GetResources() {
		agents = append(agents, r.GetAgents()...)
	}
	named := ""
	for _, a := range agents {
		if a.GetName() == "main" {
			named = a.GetEnv()["OWNER"] + " " + a.GetMetadata()[0].GetScript()
		}
	}
	if named != "ann echo ann" {
		t.Errorf("the agent after the claim is of %q", named)
	}
	facts := func(of map[string]map[string]any) any {
		value, _ := of["terraform_data.facts"]["output"].(map[string]any)
		return value["value"]
	}
	if b, a := facts(before), facts(after); b != "1 true false" || a != "0 false true" {
		t.Errorf("facts: %v, then %v", b, a)
	}
	_, later := build(second.GetState(), "ann", func(*provisionerpb.Metadata) {})
	if later["coder_agent.main"]["token"] == after["coder_agent.main"]["token"] || facts(later) != "0 false false" {
		t.Error("a later start still is a claim")
	}
}
