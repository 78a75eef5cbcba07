package terraform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// early returns a template whose agent is known long before its script, variable and app, which wait for a file.
func early(gate string) map[string]string {
	return files(fmt.Sprintf(`
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "machine" {
  input = coder_agent.main.id
}
resource "terraform_data" "volume" {
  input = terraform_data.machine.id
  provisioner "local-exec" {
    command = "while [ ! -e %s ]; do sleep 0.02; done"
  }
}
resource "coder_script" "s" {
  depends_on   = [terraform_data.volume]
  agent_id     = coder_agent.main.id
  display_name = "Late"
  script       = "true"
  run_on_start = true
}
resource "coder_env" "e" {
  depends_on = [terraform_data.volume]
  agent_id   = coder_agent.main.id
  name       = "LATE"
  value      = "yes"
}
resource "terraform_data" "last" {
  depends_on = [coder_script.s, coder_env.e]
  provisioner "local-exec" {
    command = "while [ ! -e %s.last ]; do sleep 0.02; done"
  }
}
`, gate, gate))
}

func agentsOf(resources []*provisionerpb.Resource) (all []*provisionerpb.Agent) {
	for _, r := range resources {
		all = append(all, r.GetAgents()...)
	}
	return all
}

// touch makes a file.
func touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Error(err)
	}
}

// TestAgentIsCompleteWhenAllOfItIsKnown: the agent is reported before everything that belongs to it is known, and as complete once all of
// that is, although the build continues.
func TestAgentIsCompleteWhenAllOfItIsKnown(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(o *terraform.Options) { o.Isolation = "none" }) // the test shares files with the job
	gate := filepath.Join(t.TempDir(), "gate")
	j := newTrial(t, early(gate))
	var mu sync.Mutex
	var seen []string
	j.sink.onResources = func(resources []*provisionerpb.Resource) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range agentsOf(resources) {
			seen = append(seen, fmt.Sprintf("complete=%t scripts=%d env=%q", a.GetComplete(), len(a.GetScripts()), a.GetEnv()["LATE"]))
			if a.GetComplete() {
				touch(t, gate+".last") // without this report the build never ends
			} else {
				touch(t, gate)
			}
		}
	}
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})).GetState()
	mu.Lock()
	got := strings.Join(seen, "; ")
	seen = nil
	mu.Unlock()
	if want := `complete=false scripts=0 env=""; complete=true scripts=1 env="yes"`; got != want {
		t.Errorf("reports: got %s, want %s", got, want)
	}

	// The next build changes the script: until it has done so, the server must not hand out the old one for the agent to run.
	again := early(gate)
	again["main.tf"] = strings.NewReplacer(`script       = "true"`, `script       = "echo new"`, "input = terraform_data.machine.id", `triggers_replace = "again"`).Replace(again["main.tf"])
	for _, name := range []string{gate, gate + ".last"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	touch(t, gate+".last")
	next := newTrial(t, again)
	next.sink.onResources = func(resources []*provisionerpb.Resource) {
		mu.Lock()
		defer mu.Unlock()
		for _, a := range agentsOf(resources) {
			script := ""
			if len(a.GetScripts()) > 0 {
				script = a.GetScripts()[0].GetScript()
			}
			if a.GetComplete() && script != "echo new" {
				t.Errorf("the agent is called complete with the script %q", script)
			}
		}
	}
	next.sink.onChange = func(c *provisionerpb.Change) {
		if c.GetAddress() == "terraform_data.volume" && c.GetCreates() {
			touch(t, gate)
		}
	}
	ok(t, next, next.build(e, &provisionerpb.WorkspaceBuild{Transition: start, State: state}))
}
