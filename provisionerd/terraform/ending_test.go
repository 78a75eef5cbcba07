package terraform_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// largerModule has an option for members of the group large.
const largerModule = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace_owner" "me" {}
data "coder_parameter" "tool" {
  name    = "tool"
  default = "vim"
  option {
    name  = "Vim"
    value = "vim"
  }
  dynamic "option" {
    for_each = contains(data.coder_workspace_owner.me.groups, "large") ? ["emacs"] : []
    content {
      name  = option.value
      value = option.value
    }
  }
}
output "tool" {
  value = data.coder_parameter.tool.value
}
`

// largerTemplate allows members of the group large more than others.
const largerTemplate = `
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
data "coder_parameter" "cores" {
  name    = "cores"
  type    = "number"
  default = 1
  mutable = true
  validation {
    min = 1
    max = contains(data.coder_workspace_owner.me.groups, "large") ? 8 : 2
  }
}
data "coder_parameter" "zone" {
  name      = "zone"
  default   = "a"
  form_type = "dropdown"
  dynamic "option" {
    for_each = contains(data.coder_workspace_owner.me.groups, "large") ? ["a", "b"] : ["a"]
    content {
      name  = option.value
      value = option.value
    }
  }
}
module "more" {
  source = "./more"
}
resource "terraform_data" "disk" {
  triggers_replace = data.coder_parameter.zone.value
}
resource "terraform_data" "vm" {
  count = data.coder_workspace.me.start_count
  input = "${data.coder_parameter.cores.value} ${module.more.tool}"
}
`

// TestEndingWithValuesThatAreNoLongerAllowed checks that a workspace stops, and is deleted, with the values that it was built with, although its
// template does not allow them any more: here because its owner left a group. What the values decide stays as it is until then.
func TestEndingWithValuesThatAreNoLongerAllowed(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := files(largerTemplate)
	template["more/main.tf"] = largerModule
	values := []*provisionerpb.ParameterValue{{Name: "cores", Value: "8"}, {Name: "zone", Value: "b"}, {Name: "tool", Value: "emacs"}}
	job := func(transition provisionerpb.Transition, state []byte, groups ...string) (*trial, *provisionerpb.Result) {
		j := newTrial(t, template)
		return j, j.build(e, &provisionerpb.WorkspaceBuild{
			Transition: transition, State: state, Parameters: values, PreviousParameters: values, Metadata: &provisionerpb.Metadata{WorkspaceName: "dev", OwnerName: "ann", OwnerGroups: groups},
		})
	}
	j, result := job(start, nil, "large")
	running := ok(t, j, result).GetState()
	disk := attribute(t, running, "disk", "id")
	if _, result := job(start, running); !strings.Contains(result.GetError(), `parameter "cores": value 8 is more than the maximum 2`) {
		t.Errorf("the start with the values ends with %q, want a refusal", result.GetError())
	}
	j, result = job(stop, running)
	stopped := ok(t, j, result).GetState()
	if got := attribute(t, stopped, "disk", "id"); got != disk {
		t.Errorf("the stop replaced the disk: %s, want %s", got, disk)
	}
	if !strings.Contains(j.sink.text(), "no longer allows") {
		t.Errorf("the log of the stop does not name the values:\n%s", j.sink.text())
	}
	j, result = job(provisionerpb.Transition_TRANSITION_DELETE, stopped)
	if left := ok(t, j, result).GetResources(); len(left) > 0 {
		t.Errorf("the deletion leaves %v", left)
	}
}
