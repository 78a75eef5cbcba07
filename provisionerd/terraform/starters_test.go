package terraform_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/codermesh/codermesh/v2/internal/starters"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// starter returns a template that comes with the program.
func starter(t *testing.T, name string) map[string]string {
	t.Helper()
	content, _, found := starters.Get(name)
	if !found {
		t.Fatalf("no starter %s", name)
	}
	all := map[string]string{}
	entries, err := fs.ReadDir(content, ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := fs.ReadFile(content, entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(text)
	}
	return all
}

// agentServer serves a program that reports its identity and then waits: reports arrive as requests. A request for /announced is answered
// after a value can be taken from announced.
func agentServer(t *testing.T, script string, announced <-chan struct{}) (url string, reports chan string) {
	t.Helper()
	reports = make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/bin/coder-linux-"):
			fmt.Fprint(w, script)
		case r.URL.Path == "/announced":
			select {
			case <-announced:
			case <-r.Context().Done():
			}
		case r.URL.Path == "/report":
			reports <- r.URL.RawQuery
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, reports
}

// fakeAgent reports its process and its surroundings, and keeps a file in its home folder.
const fakeAgent = `#!/bin/sh
report() {
	if command -v curl >/dev/null 2>&1; then curl -fsS "$1"; else wget -qO- "$1"; fi
}
count=$(cat "$HOME/starts" 2>/dev/null || echo 0)
echo $((count + 1)) >"$HOME/starts"
report "${CODER_AGENT_URL}report?pid=$$&home=$HOME&token=$CODER_AGENT_TOKEN&starts=$(cat "$HOME/starts")&tf=${TF_REATTACH_PROVIDERS:+left}&path=$(command -v coder)&arg=$1"
trap 'exit 0' TERM
while :; do sleep 1 & wait $!; done
`

func receive(t *testing.T, from <-chan string, what string) map[string]string {
	t.Helper()
	select {
	case query := <-from:
		values := map[string]string{}
		for pair := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			values[name] = value
		}
		return values
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing came", what)
		return nil
	}
}

// untilAnnounced is a resource that holds a build until the agent is announced.
const untilAnnounced = `
resource "terraform_data" "until_announced" {
  count            = data.coder_workspace.me.start_count
  triggers_replace = coder_agent.main.token

  provisioner "local-exec" {
    command     = "if command -v curl >/dev/null; then curl -fsS $URL; else wget -qO- $URL; fi"
    environment = { URL = "${data.coder_workspace.me.access_url}/announced" }
  }
}
`

// TestProcessStarter runs the starter through a workspace's life, in every isolation.
func TestProcessStarter(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"auto", "auto as another account", "none"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			var e *terraform.Executor
			workspaces := ""
			switch isolation {
			case "auto as another account":
				if os.Geteuid() != 0 {
					t.Skip("only root can change accounts")
				}
				e, workspaces = accountExecutor(t)
			default:
				e = newExecutor(t, func(o *terraform.Options) { o.Isolation, workspaces = isolation, o.WorkspacesDir })
			}
			t.Log(e.Isolation())
			announced := make(chan struct{}, 2)
			url, reports := agentServer(t, fakeAgent, announced)
			m := metadata()
			m.AccessUrl = url
			template := starter(t, "process")
			template["until_announced.tf"] = untilAnnounced
			var state []byte
			first := map[string]string{}
			for round := range 2 {
				j := newTrial(t, template)
				var token string // of the agent that was announced first; without the announcement the build does not end
				j.sink.onResources = func(resources []*provisionerpb.Resource) {
					if agents := agentsOf(resources); token == "" && len(agents) > 0 {
						token = agents[0].GetToken()
						announced <- struct{}{}
					}
				}
				state = ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, State: state, Metadata: m})).GetState()
				report := receive(t, reports, "start")
				if want := fmt.Sprint(round + 1); report["starts"] != want || report["tf"] != "" || report["arg"] != "agent" {
					t.Errorf("round %d: the agent reports %v", round, report)
				}
				if want := attribute(t, state, "main", "token"); report["token"] != want {
					t.Errorf("round %d: the agent has token %s, the state has %s", round, report["token"], want)
				}
				if home := filepath.Join(workspaces, workspaceID.String(), "home"); report["home"] != home {
					t.Errorf("round %d: home %s, want %s", round, report["home"], home)
				}
				mark := "CODER_AGENT_TOKEN=" + report["token"]
				if len(processes(t, mark)) == 0 {
					t.Errorf("round %d: the workspace did not outlive its build", round)
				}
				if token != report["token"] {
					t.Errorf("round %d: announced the token %s, the agent has %s", round, token, report["token"])
				}
				first = report
				j = newTrial(t, template)
				state = ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: stop, State: state, Metadata: m})).GetState()
				vanish(t, mark)
			}
			j := newTrial(t, template)
			ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, State: state, Metadata: m}))
			if _, err := os.Stat(first["home"]); !os.IsNotExist(err) {
				t.Errorf("the home folder is still there: %v", err)
			}
		})
	}
}

// accountExecutor returns an executor that another account can reach: its folders lie outside the test's private ones.
func accountExecutor(t *testing.T) (*terraform.Executor, string) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "cmtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	workspaces := filepath.Join(base, "ws")
	e := newExecutor(t, func(o *terraform.Options) {
		o.CacheDir, o.RunDir, o.WorkspacesDir = filepath.Join(base, "c"), filepath.Join(base, "r"), workspaces
	})
	if !strings.Contains(e.Isolation(), "an account per job") {
		t.Fatalf("isolation is %q", e.Isolation())
	}
	return e, workspaces
}

// TestInheritingTemplate covers templates that start the agent with the build's whole environment, where nothing is isolated.
func TestInheritingTemplate(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(o *terraform.Options) { o.Isolation = "none" })
	url, reports := agentServer(t, fakeAgent, nil)
	m := metadata()
	m.AccessUrl = url
	dir := t.TempDir()
	template := files(fmt.Sprintf(`
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  input = { dir = %q }
  provisioner "local-exec" {
    command     = "cd ${self.input.dir} && setsid sh -c 'echo $$ >pid; exec sh -c \"$INIT\"' >agent.log 2>&1 </dev/null &"
    environment = { INIT = coder_agent.main.init_script, CODER_AGENT_TOKEN = coder_agent.main.token }
  }
  provisioner "local-exec" {
    when    = destroy
    command = "kill -- -$(cat ${self.input.dir}/pid) || true"
  }
}
`, dir))
	j := newTrial(t, template)
	state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState()
	report := receive(t, reports, "start")
	if report["home"] != dir || report["tf"] != "" || !strings.HasPrefix(report["path"], "/tmp/coder.") {
		t.Errorf("the agent reports %v", report)
	}
	j = newTrial(t, template)
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: stop, Metadata: m, State: state}))
	vanish(t, "CODER_AGENT_TOKEN="+report["token"])
}

// withoutDocker removes from a template what needs the Docker provider, which tests cannot install.
func withoutDocker(t *testing.T, text string) string {
	t.Helper()
	file, diags := hclwrite.ParseConfig([]byte(text), "main.tf", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	body, removed := file.Body(), 0
	for _, block := range body.Blocks() {
		labels := block.Labels()
		if block.Type() == "terraform" {
			block.Body().FirstMatchingBlock("required_providers", nil).Body().RemoveAttribute("docker")
		}
		if len(labels) > 0 && (labels[0] == "docker" || strings.HasPrefix(labels[0], "docker_")) {
			body.RemoveBlock(block)
			removed++
		}
	}
	if removed < 3 {
		t.Fatalf("%d blocks of the Docker provider", removed)
	}
	return string(file.Bytes())
}

// TestDevcontainerStarter imports and builds the starter without its containers: the agent in the dev container is an agent of the workspace,
// and works in the repository that the owner has chosen.
func TestDevcontainerStarter(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := starter(t, "devcontainer")
	template["main.tf"] = withoutDocker(t, template["main.tf"])
	j := newTrial(t, template)
	imported := j.importIt(e, &provisionerpb.TemplateImport{})
	if imported.GetError() != "" || strings.Contains(j.sink.text(), "no effect") {
		t.Fatalf("import: %s\n%s", imported.GetError(), j.sink.text())
	}
	parameters := imported.GetTemplateImport().GetParameters()
	if len(parameters) != 2 {
		t.Fatalf("parameters %v", parameters)
	}
	rule, err := regexp.Compile(parameters[0].GetValidation().GetRegex())
	if err != nil {
		t.Fatal(err)
	}
	for repository, valid := range map[string]bool{
		parameters[0].GetDefaultValue(): true, "git@git.example.com:team/project": true, "ssh://git@git.example.com/project.git": true,
		"/etc": false, "project": false, "file:///etc": false, "https://x/'; id; '": false, "https://x/a b": false, "a@b:c\nd": false,
	} {
		if got := rule.MatchString(repository); got != valid {
			t.Errorf("%q: accepted %t", repository, got)
		}
	}
	for repository, folder := range map[string]string{
		"https://git.example.com/team/project.git": "/home/coder/project", "git@git.example.com:team/project": "/home/coder/project",
		"git@git.example.com:project": "/home/coder/project", "https://git.example.com/team/project/": "/home/coder/project",
	} {
		j := newTrial(t, template)
		built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Parameters: []*provisionerpb.ParameterValue{{Name: "repository", Value: repository}}}))
		all := agentsOf(built.GetResources())
		if len(all) != 1 || len(all[0].GetDevcontainers()) != 1 {
			t.Fatalf("%s: agents %v", repository, all)
		}
		c := all[0].GetDevcontainers()[0]
		if c.GetWorkspaceFolder() != folder || c.GetAgent().GetName() != "project" {
			t.Errorf("%s: dev container %v, want the folder %s", repository, c, folder)
		}
		script := all[0].GetScripts()[0].GetScript()
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", script).CombinedOutput(); err != nil || !strings.Contains(script, "git clone -- '"+repository+"' 'project'") {
			t.Errorf("%s: start script: %v %s\n%s", repository, err, out, script)
		}
	}
}

// TestExternalStarter imports and starts the starter that makes nothing: its agent belongs to its coder_external_agent.
func TestExternalStarter(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := starter(t, "external")
	j := newTrial(t, template)
	imported := j.importIt(e, &provisionerpb.TemplateImport{})
	if imported.GetError() != "" || strings.Contains(j.sink.text(), "no effect") {
		t.Fatalf("import: %s\n%s", imported.GetError(), j.sink.text())
	}
	j = newTrial(t, template)
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	for what, resources := range map[string][]*provisionerpb.Resource{"import": imported.GetTemplateImport().GetStartResources(), "build": built.GetResources()} {
		if len(resources) != 1 || resources[0].GetType() != "coder_external_agent" || len(resources[0].GetAgents()) != 1 {
			t.Errorf("%s: resources %v", what, resources)
		}
	}
}
