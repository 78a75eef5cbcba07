package terraform_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const twoHomes = `
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
  input = { agent = coder_agent.main.id, home = terraform_data.home.id }
}
`

func TestStartStopStartDelete(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	var state []byte
	home := ""
	for i, step := range []struct {
		transition provisionerpb.Transition
		want       string
	}{
		{start, "terraform_data.home terraform_data.machine(main)"},
		{stop, "terraform_data.home coder_agent.main(main)"},
		{start, "terraform_data.home terraform_data.machine(main)"},
		{remove, ""},
	} {
		j := newTrial(t, files(twoHomes))
		got := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: step.transition, State: state}))
		if shape := shapeOf(got.GetResources()); shape != step.want {
			t.Errorf("step %d %v: resources %q, want %q", i, step.transition, shape, step.want)
		}
		state = got.GetState()
		if step.transition == remove {
			continue
		}
		if id := attribute(t, state, "home", "id"); home != "" && id != home {
			t.Errorf("step %d: the persistent resource was replaced", i)
		} else {
			home = id
		}
		t.Log(j.sink.text())
	}
}

// shapeOf describes which resources exist and which agents they have.
func shapeOf(resources []*provisionerpb.Resource) string {
	var parts []string
	for _, r := range resources {
		part := r.GetType() + "." + r.GetName()
		for _, a := range r.GetAgents() {
			part += "(" + a.GetName() + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

// attribute reads an attribute of the first instance of a resource in a state.
func attribute(t *testing.T, state []byte, name, attr string) string {
	t.Helper()
	value := attributeOf(t, state, name, attr)
	if dynamic, ok := value.(map[string]any); ok {
		value = dynamic["value"]
	}
	text, _ := value.(string)
	return text
}

// attributeText returns an attribute of any type as JSON.
func attributeText(t *testing.T, state []byte, name, attr string) string {
	t.Helper()
	text, err := json.MarshalIndent(attributeOf(t, state, name, attr), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func attributeOf(t *testing.T, state []byte, name, attr string) any {
	t.Helper()
	var s struct {
		Resources []struct {
			Name      string `json:"name"`
			Instances []struct {
				Attributes map[string]any `json:"attributes"`
			} `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		t.Fatalf("state: %v\n%s", err, state)
	}
	for _, r := range s.Resources {
		if r.Name == name && len(r.Instances) > 0 {
			return r.Instances[0].Attributes[attr]
		}
	}
	t.Fatalf("no resource %s in state", name)
	return nil
}
