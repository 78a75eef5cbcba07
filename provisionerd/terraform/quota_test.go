package terraform_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const costly = `
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "home" {
  input = data.coder_workspace.me.id
}
resource "terraform_data" "machine" {
  count = data.coder_workspace.me.start_count
  input = coder_agent.main.id
}
resource "coder_metadata" "home" {
  resource_id = terraform_data.home.id
  daily_cost  = 10
}
resource "coder_metadata" "machine" {
  count       = data.coder_workspace.me.start_count
  resource_id = terraform_data.machine[0].id
  daily_cost  = 30
}
`

// TestQuota: a start that exceeds the quota makes nothing, and one within it is what it is without a quota.
func TestQuota(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	build := func(transition provisionerpb.Transition, state []byte, quota *provisionerpb.Quota) (*trial, *provisionerpb.Result) {
		t.Helper()
		j := newTrial(t, files(costly))
		return j, j.build(e, &provisionerpb.WorkspaceBuild{
			Transition: transition, State: state, Quota: quota, Metadata: &provisionerpb.Metadata{OwnerName: "ann"},
		})
	}
	j, refused := build(start, nil, &provisionerpb.Quota{Used: 61, Allowance: 100})
	if want := "This build needs 40 credits a day; ann uses 61 of 100."; refused.GetError() != want {
		t.Errorf("error %q, want %q", refused.GetError(), want)
	}
	if got := refused.GetWorkspaceBuild(); len(got.GetState()) > 0 || len(got.GetResources()) > 0 {
		t.Errorf("a refused start made %q", shapeOf(got.GetResources()))
	}
	if strings.Contains(j.sink.text(), "Creation complete") {
		t.Errorf("a refused start made something:\n%s", j.sink.text())
	}

	j, within := build(start, nil, &provisionerpb.Quota{Used: 60, Allowance: 100})
	built := ok(t, j, within)
	var cost int32
	for _, r := range built.GetResources() {
		cost += r.GetDailyCost()
	}
	if shape := shapeOf(built.GetResources()); shape != "terraform_data.home terraform_data.machine(main)" || cost != 40 {
		t.Errorf("built %q for %d credits", shape, cost)
	}

	// What a refused start finds stays, and can be stopped whatever the quota is.
	_, refused = build(start, built.GetState(), &provisionerpb.Quota{Allowance: 39})
	if refused.GetError() == "" || attribute(t, refused.GetWorkspaceBuild().GetState(), "home", "id") != attribute(t, built.GetState(), "home", "id") {
		t.Errorf("refused again: %q, state %s", refused.GetError(), refused.GetWorkspaceBuild().GetState())
	}
	j, stopped := build(stop, built.GetState(), nil)
	if shape := shapeOf(ok(t, j, stopped).GetResources()); !strings.HasPrefix(shape, "terraform_data.home") {
		t.Errorf("stopped: %q", shape)
	}
}
