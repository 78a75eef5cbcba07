package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

const prebuiltPreset = `
data "coder_workspace_preset" "ready" {
  name       = "Ready"
  parameters = { shell = "/bin/sh" }
  prebuilds {
    instances = 1
  }
}
resource "coder_env" "owner" {
  agent_id = coder_agent.main.id
  name     = "FOR_OWNER"
  value    = data.coder_workspace_owner.me.name
}
resource "coder_script" "count" {
  agent_id     = coder_agent.main.id
  display_name = "Count"
  run_on_start = true
  script       = "echo $FOR_OWNER $PPID >> $HOME/starts"
}
`

// listed is what `coder list -o json` prints of a workspace.
type listed struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Owner       string `json:"owner_name"`
	LatestBuild struct {
		Number    int    `json:"build_number"`
		Status    string `json:"status"`
		Instant   bool   `json:"instant_claim"`
		Resources []struct {
			Agents []struct{ ID, LifecycleState string }
		}
	} `json:"latest_build"`
}

// list lists workspaces as a user.
func (d *deployment) list(user string, args ...string) (rows []listed) {
	t := d.t
	t.Helper()
	out, stderr, err := d.tryAs(user, append([]string{"list", "-o", "json"}, args...)...)
	if err != nil {
		t.Fatalf("list: %v\n%s", err, stderr)
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestPrebuiltWorkspace creates a workspace from a preset and gets the prebuilt one: the process and the agent are the same, and belong to the user
// from then on. No user could enter it before.
func TestPrebuiltWorkspace(t *testing.T) {
	t.Parallel()
	d := startServer(t)
	template := filepath.Join(d.dir, "process")
	d.coder("templates", "init", "--id", "process", template)
	if err := os.WriteFile(filepath.Join(template, "prebuilds.tf"), []byte(prebuiltPreset), 0o600); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "process", "-d", template, "-y")
	d.member("ann")
	d.member("bob")

	var before listed
	testwait.Until(t, "the prebuilt workspace is ready", func() error {
		out, stderr, err := d.try("list", "-o", "json", "--search", "owner:prebuilds")
		var rows []listed
		if err != nil || json.Unmarshal([]byte(out), &rows) != nil || len(rows) != 1 || !strings.Contains(out, `"lifecycle_state": "ready"`) {
			return fmt.Errorf("the pool: %s%s (%w)", out, stderr, err)
		}
		before = rows[0]
		return nil
	})
	if got := d.list("ann", "--all"); len(got) != 0 {
		t.Errorf("ann sees %+v", got)
	}
	for _, user := range []string{"admin", "ann"} {
		if out, _, err := d.tryAs(user, "ssh", "prebuilds/"+before.Name, "--", "echo", "in"); err == nil || strings.Contains(out, "in") {
			t.Errorf("%s entered a prebuilt workspace: %q", user, out)
		}
	}

	if _, stderr, err := d.tryAs("ann", "create", "mine", "-t", "process", "--preset", "Ready", "-y"); err != nil {
		t.Fatalf("create: %v\n%s", err, stderr)
	}
	rows := d.list("ann")
	if len(rows) != 1 || rows[0].ID != before.ID || rows[0].Owner != "ann" || rows[0].Name != "mine" || rows[0].LatestBuild.Number != 2 {
		t.Fatalf("ann has %+v, want the prebuilt workspace %s", rows, before.ID)
	}
	// The build follows: it did not have to end before ann could connect.
	if out, stderr, err := d.tryAs("ann", "ssh", "mine", "--", "echo $FOR_OWNER $CODER_WORKSPACE_OWNER_NAME $CODER_WORKSPACE_NAME"); err != nil || out != "ann ann mine\n" {
		t.Errorf("the first session is of %q, %v\n%s", out, err, stderr)
	}
	if !rows[0].LatestBuild.Instant {
		t.Error("the claim waited for its build")
	}
	testwait.Until(t, "the claim's build has succeeded", func() error { return testwait.Equal(d.list("ann")[0].LatestBuild.Status, "running") })
	agent := func(r listed) (ids string) {
		for _, resource := range r.LatestBuild.Resources {
			for _, a := range resource.Agents {
				ids += a.ID
			}
		}
		return ids
	}
	if a, b := agent(before), agent(rows[0]); a != b || a == "" {
		t.Errorf("the agent was %q and is %q", a, b)
	}
	// The start script ran before the claim and then for ann, both times below one process.
	var starts []string
	testwait.Until(t, "the start script ran for ann", func() error {
		out, stderr, err := d.tryAs("ann", "ssh", "mine", "--", "cat starts; echo now $FOR_OWNER")
		starts = strings.Fields(out)
		return testwait.Unless(err == nil && len(starts) == 6, "%s%s (%v)", out, stderr, err)
	})
	if len(starts) != 6 || starts[0] != "prebuilds" || starts[2] != "ann" || starts[1] != starts[3] || starts[5] != "ann" {
		t.Errorf("the start scripts ran as %q", starts)
	}
	for _, user := range []string{"admin", "bob"} {
		if _, _, err := d.tryAs(user, "ssh", "ann/mine", "--", "true"); err == nil {
			t.Errorf("%s entered ann's workspace", user)
		}
	}
	testwait.Until(t, "the pool is filled again", func() error { return testwait.Len(d.list("admin", "--search", "owner:prebuilds"), 1) })
	d.coder("prebuilds", "pause")
	if _, _, err := d.tryAs("ann", "prebuilds", "resume"); err == nil {
		t.Error("a member resumed prebuilt workspaces")
	}
	d.coder("prebuilds", "resume")
}
