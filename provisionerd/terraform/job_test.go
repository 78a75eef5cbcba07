package terraform_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

const agentWithEverything = `
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os                      = "linux"
  arch                    = "amd64"
  dir                     = "/home/x"
  env                     = { A = "1", PATH_LIKE = "/a" }
  startup_script          = "echo up"
  startup_script_behavior = "blocking"
  shutdown_script         = "echo down"
  connection_timeout      = 60
  motd_file               = "/etc/motd"
  troubleshooting_url     = "https://example.com/help"
  order                   = 3
  display_apps {
    vscode       = false
    web_terminal = true
  }
  metadata {
    key          = "load"
    display_name = "Load"
    script       = "cat /proc/loadavg"
    interval     = 10
    timeout      = 2
    order        = 1
  }
}
resource "coder_env" "b" {
  agent_id = coder_agent.main.id
  name     = "B"
  value    = "2"
}
resource "coder_env" "path" {
  agent_id       = coder_agent.main.id
  name           = "PATH_LIKE"
  value          = "/b"
  merge_strategy = "append"
}
resource "coder_script" "s" {
  agent_id           = coder_agent.main.id
  display_name       = "Tick"
  script             = "date"
  cron               = "0 0 * * * *"
  run_on_start       = true
  start_blocks_login = true
  timeout            = 30
}
resource "coder_app" "web" {
  agent_id     = coder_agent.main.id
  slug         = "web"
  display_name = "Web"
  url          = "http://localhost:8080"
  subdomain    = true
  share        = "authenticated"
  healthcheck {
    url       = "http://localhost:8080/health"
    interval  = 5
    threshold = 6
  }
}
resource "terraform_data" "vm" {
  count = data.coder_workspace.me.start_count
  input = coder_agent.main.token
}
resource "coder_metadata" "vm" {
  count       = data.coder_workspace.me.start_count
  resource_id = terraform_data.vm[0].id
  icon        = "/icon/vm.svg"
  daily_cost  = 7
  item {
    key   = "size"
    value = "big"
  }
  item {
    key       = "password"
    value     = "hunter2"
    sensitive = true
  }
}
`

func TestAgentFacts(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	j := newTrial(t, files(agentWithEverything))
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if len(built.GetResources()) != 1 || len(built.GetResources()[0].GetAgents()) != 1 {
		t.Fatalf("resources %v", built.GetResources())
	}
	got := built.GetResources()[0]
	a := got.GetAgents()[0]
	if len(a.GetId()) != 16 || a.GetToken() != attribute(t, built.GetState(), "main", "token") {
		t.Errorf("agent id %x, token %q", a.GetId(), a.GetToken())
	}
	for _, s := range a.GetScripts() {
		if len(s.GetId()) != 16 {
			t.Errorf("script %s has the id %x", s.GetDisplayName(), s.GetId())
		}
	}
	want := &provisionerpb.Resource{
		Name: "vm", Type: "terraform_data", Icon: "/icon/vm.svg", DailyCost: 7,
		Metadata: []*provisionerpb.ResourceMetadata{{Key: "size", Value: "big"}, {Key: "password", Value: "hunter2", Sensitive: true}},
		Agents: []*provisionerpb.Agent{{
			Name: "main", Os: "linux", Arch: "amd64", Auth: "token", Directory: "/home/x",
			Env:                   map[string]string{"A": "1", "B": "2", "PATH_LIKE": "/a:/b"},
			StartupScriptBehavior: "blocking", MotdFile: "/etc/motd", TroubleshootingUrl: "https://example.com/help",
			ConnectionTimeoutSeconds: 60, Order: 3,
			DisplayApps: []string{"web_terminal", "ssh_helper", "port_forwarding_helper"},
			Apps: []*provisionerpb.App{{
				Slug: "web", DisplayName: "Web", Url: "http://localhost:8080", Subdomain: true, Share: "authenticated", OpenIn: "slim-window",
				HealthcheckUrl: "http://localhost:8080/health", HealthcheckInterval: 5, HealthcheckThreshold: 6,
			}},
			Scripts: []*provisionerpb.Script{
				{DisplayName: "Startup Script", Script: "echo up", LogPath: "coder-startup-script.log", RunOnStart: true, StartBlocksLogin: true},
				{DisplayName: "Shutdown Script", Script: "echo down", LogPath: "coder-shutdown-script.log", RunOnStop: true},
				{DisplayName: "Tick", Script: "date", Cron: "0 0 * * * *", RunOnStart: true, StartBlocksLogin: true, TimeoutSeconds: 30},
			},
			Metadata: []*provisionerpb.AgentMetadata{{Key: "load", DisplayName: "Load", Script: "cat /proc/loadavg", Interval: 10, Timeout: 2, Order: 1}},
		}},
	}
	diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&provisionerpb.Agent{}, "id", "token", "place"),
		protocmp.IgnoreFields(&provisionerpb.App{}, "id", "place"), protocmp.IgnoreFields(&provisionerpb.Script{}, "id"))
	if diff != "" {
		t.Errorf("resource (-want +got):\n%s", diff)
	}
	if place := got.GetAgents()[0].GetApps()[0].GetPlace(); !strings.HasPrefix(place, "main.tf:") {
		t.Errorf("the app is at %q", place)
	}
}

func TestBuildParameters(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := files(`
data "coder_parameter" "cpu" {
  name = "cores"
  type = "number"
  validation {
    min       = 2
    max       = 8
    monotonic = "increasing"
  }
}
resource "terraform_data" "vm" {
  input = data.coder_parameter.cpu.value
}
`)
	for name, c := range map[string]struct{ value, previous, want string }{
		"good":    {value: "4"},
		"missing": {want: "cores"},
		"small":   {value: "1", want: `parameter "cores": value 1 is less than the minimum 2`},
		"shrinks": {value: "3", previous: "5", want: "must be equal or greater than previous value: 5"},
	} {
		t.Run(name, func(t *testing.T) {
			work := &provisionerpb.WorkspaceBuild{Transition: start}
			if c.value != "" {
				work.Parameters = []*provisionerpb.ParameterValue{{Name: "cores", Value: c.value}}
			}
			if c.previous != "" {
				work.PreviousParameters = []*provisionerpb.ParameterValue{{Name: "cores", Value: c.previous}}
			}
			j := newTrial(t, template)
			result := j.build(e, work)
			if c.want == "" {
				if got := attribute(t, ok(t, j, result).GetState(), "vm", "output"); got != c.value {
					t.Errorf("value %q, want %q", got, c.value)
				}
				return
			}
			if !strings.Contains(result.GetError(), c.want) || result.GetErrorCode() != "INVALID_PARAMETERS" {
				t.Errorf("error %q (%s), want %q", result.GetError(), result.GetErrorCode(), c.want)
			}
		})
	}
}

// chain returns three resources, the second of which waits until a file exists, and runs the lines of do while it waits.
func chain(gate string, do ...string) map[string]string {
	return files(fmt.Sprintf(`
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "a" {
  input = coder_agent.main.id
}
resource "terraform_data" "b" {
  input = terraform_data.a.id
  provisioner "local-exec" {
    command = "echo waiting; %s; while [ ! -e %s ]; do sleep 0.05; done"
  }
}
resource "terraform_data" "c" {
  input = terraform_data.b.id
}
`, strings.Join(append([]string{"true"}, do...), "; "), gate))
}

func TestBreaks(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, how := range []string{"stop", "end at once", "terraform is killed"} {
		t.Run(how, func(t *testing.T) {
			template := chain(filepath.Join(t.TempDir(), "gate"))
			if how == "terraform is killed" {
				template = chain(filepath.Join(t.TempDir(), "gate"), "kill -9 $PPID")
			}
			j := newTrial(t, template)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			j.ctx = ctx
			var once sync.Once
			j.sink.onLine = func(line string) {
				if !strings.HasSuffix(line, "waiting") {
					return
				}
				once.Do(func() {
					switch how {
					case "stop":
						close(j.stop)
					case "end at once":
						cancel()
					}
				})
			}
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			if result.GetError() == "" {
				t.Fatalf("the build succeeded\n%s", j.sink.text())
			}
			if want := how != "terraform is killed"; result.GetCanceled() != want {
				t.Errorf("canceled %v, want %v: %s", result.GetCanceled(), want, result.GetError())
			}
			built := result.GetWorkspaceBuild()
			attribute(t, built.GetState(), "a", "id")
			if got := built.GetInFlight(); got != "terraform_data.b" {
				t.Errorf("in flight %q", got)
			}
			// The remains can be deleted, and nothing of the job disturbs the next one.
			j = newTrial(t, chain("/"))
			ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, State: built.GetState()}))
		})
	}
}

// runDoomed is the body of a process that runs a job until it is killed.
func runDoomed(args []string) error {
	var opts terraform.Options
	if err := json.Unmarshal([]byte(args[0]), &opts); err != nil {
		return err
	}
	e, err := terraform.New(context.Background(), opts)
	if err != nil {
		return err
	}
	archive, err := hex.DecodeString(args[1])
	if err != nil {
		return err
	}
	id, err := uuid.Parse(args[2])
	if err != nil {
		return err
	}
	told := &recorder{onChange: func(c *provisionerpb.Change) {
		if text, err := protojson.Marshal(c); err == nil {
			fmt.Println(string(text))
		}
	}}
	j := &trial{source: archive, sink: told, stop: make(chan struct{}), ctx: context.Background(), id: id}
	return errors.New(j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}).GetError())
}

// changesIn reads what a doomed process reported.
func changesIn(t *testing.T, text string) (changes []*provisionerpb.Change) {
	t.Helper()
	for line := range strings.Lines(text) {
		c := &provisionerpb.Change{}
		if err := protojson.Unmarshal([]byte(line), c); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		changes = append(changes, c)
	}
	return changes
}

// doomed kills a process in the middle of a job. It returns the process's options, the job, and what the process had reported.
func doomed(t *testing.T) (opts terraform.Options, id uuid.UUID, known job.Known) {
	t.Helper()
	opts = options(t)
	mark := filepath.Join(t.TempDir(), "mark")
	id, known = doom(t, opts, chain(mark), func() { appear(t, "-e "+mark, 1) })
	t.Cleanup(func() { vanish(t, "-e "+mark) })
	return opts, id, known
}

// doom kills a process that runs a template's build when ready returns.
func doom(t *testing.T, opts terraform.Options, template map[string]string, ready func()) (id uuid.UUID, known job.Known) {
	t.Helper()
	opts.Logger = nil
	text, err := json.Marshal(opts)
	if err != nil {
		t.Fatal(err)
	}
	id = uuid.New()
	cmd := exec.CommandContext(t.Context(), opts.Worker[0], "doomed", string(text), hex.EncodeToString(tarOf(t, template)), id.String())
	var problems, told strings.Builder
	cmd.Stderr, cmd.Stdout = &problems, &told
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready()
	if _, err := terraform.New(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "provisioner uses the folder") {
		t.Errorf("a second executor on the same folder: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	known.Changes = changesIn(t, told.String())
	return id, known
}

// TestRecover: another process takes over the folders of one that was killed in the middle of a job, and ends what that one left.
func TestRecover(t *testing.T) {
	t.Parallel()
	opts, id, known := doomed(t)
	e := newExecutor(t, func(o *terraform.Options) { *o = opts })
	left, err := e.Recover(t.Context(), id, 1, known)
	if err != nil {
		t.Fatal(err)
	}
	attribute(t, left.State, "a", "id")
	// In a sandbox Terraform survives to save its state; without one it ends with the daemon.
	unknown, tainted, has := []string{"terraform_data.b"}, []string(nil), []string{"a", "main"}
	if strings.Contains(e.Isolation(), "bubblewrap") {
		unknown, tainted, has = tainted, unknown, []string{"a", "b tainted", "main"}
	}
	if diff := cmp.Diff([][]string{unknown, tainted, has}, [][]string{left.Unknown, left.Tainted, statuses(t, left.State)}); diff != "" {
		t.Errorf("unknown, tainted and state (-want +got):\n%s", diff)
	}
	if left, err := e.Recover(t.Context(), id, 1, job.Known{}); left.State != nil || left.Unknown != nil || err != nil {
		t.Errorf("recovered twice: %v, %v", left, err)
	}
}

// TestRecoverAfterReboot: a rebooted host has lost the run folder. Everything that was begun is in the last delivered state, or is named.
func TestRecoverAfterReboot(t *testing.T) {
	t.Parallel()
	opts, id, known := doomed(t)
	newExecutor(t, func(o *terraform.Options) { *o = opts }) // waits for the job to end, which a reboot does at once
	if err := os.RemoveAll(filepath.Join(opts.RunDir, "left")); err != nil {
		t.Fatal(err)
	}
	other := options(t)
	e := newExecutor(t, func(o *terraform.Options) { *o = other })
	known.Checkpoint = []byte(`{"version":4,"serial":1,"lineage":"l","resources":[{"mode":"managed","type":"coder_agent","name":"main","instances":[{"attributes":{}}]},{"mode":"managed","type":"terraform_data","name":"b","instances":[{"attributes":{}}]}]}`)
	left, err := e.Recover(t.Context(), id, 1, known)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"terraform_data.a"}, {"terraform_data.b"}, {"b tainted", "main"}}
	if diff := cmp.Diff(want, [][]string{left.Unknown, left.Tainted, statuses(t, left.State)}); diff != "" {
		t.Errorf("unknown, tainted and state (-want +got):\n%s", diff)
	}
}

// TestGivenFacts builds a template that reads everything about its workspace and owner: none of it is left to the provider's defaults.
func TestGivenFacts(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	m := metadata()
	m.OwnerOidcAccessToken = "OIDC-TOKEN-SECRET"
	j := newTrial(t, files(`
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
data "coder_provisioner" "me" {}
locals {
  secrets = [
    data.coder_workspace_owner.me.session_token, data.coder_workspace_owner.me.ssh_private_key, data.coder_workspace_owner.me.oidc_access_token,
  ]
}
`))
	var s struct {
		Resources []struct {
			Type      string `json:"type"`
			Instances []struct {
				Attributes map[string]any `json:"attributes"`
			} `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: m})).GetState(), &s); err != nil {
		t.Fatal(err)
	}
	empty := map[string]bool{"is_prebuild": true, "is_prebuild_claim": true, "prebuild_count": true} // TestClaimKeepsAgents has them
	read := 0
	for _, r := range s.Resources {
		for name, value := range r.Instances[0].Attributes {
			read++
			if got := fmt.Sprint(value); (got == "" || got == "false" || got == "0" || got == "[]" || got == "default" || got == "<nil>") != empty[name] {
				t.Errorf("%s.%s is %q", r.Type, name, got)
			}
		}
	}
	if read < 25 {
		t.Errorf("read %d attributes", read)
	}
}

// TestDevcontainers builds a workspace whose agent starts dev containers: what belongs to the agent in one does not belong to the agent outside.
func TestDevcontainers(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	text := agentWithEverything + `
resource "coder_devcontainer" "app" {
  agent_id         = coder_agent.main.id
  workspace_folder = "/work/app"
  config_path      = "dev/devcontainer.json"
}
resource "coder_devcontainer" "many" {
  count            = 2
  agent_id         = coder_agent.main.id
  workspace_folder = "/work/${count.index}"
}
resource "coder_app" "inside" {
  agent_id = coder_devcontainer.app.subagent_id
  slug     = "inside"
  url      = "http://localhost:81"
}
resource "coder_script" "inside" {
  agent_id     = coder_devcontainer.app.subagent_id
  display_name = "Inside"
  script       = "true"
  run_on_start = true
}
resource "coder_env" "inside" {
  agent_id = coder_devcontainer.app.subagent_id
  name     = "WHERE"
  value    = "inside"
}
`
	j := newTrial(t, files(text))
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if len(built.GetResources()) != 1 || len(built.GetResources()[0].GetAgents()) != 1 {
		t.Fatalf("resources %v", built.GetResources())
	}
	a := built.GetResources()[0].GetAgents()[0]
	if len(a.GetApps()) != 1 || len(a.GetScripts()) != 3 || a.GetEnv()["WHERE"] != "" {
		t.Errorf("the agent outside has %v", a)
	}
	var got []string
	for _, c := range a.GetDevcontainers() {
		got = append(got, c.GetAgent().GetName()+" "+c.GetWorkspaceFolder()+" "+c.GetConfigPath())
		if len(c.GetId()) != 16 || len(c.GetAgent().GetId()) != 16 || c.GetAgent().GetToken() != "" || c.GetAgent().GetOs() != "linux" ||
			!slices.Equal(c.GetAgent().GetDisplayApps(), a.GetDisplayApps()) {
			t.Errorf("dev container %v", c)
		}
	}
	if want := []string{"app /work/app dev/devcontainer.json", "many-0 /work/0 ", "many-1 /work/1 "}; !slices.Equal(got, want) {
		t.Fatalf("dev containers %q, want %q", got, want)
	}
	inside := a.GetDevcontainers()[0].GetAgent()
	if uuid.UUID(inside.GetId()).String() != attribute(t, built.GetState(), "app", "subagent_id") || len(inside.GetApps()) != 1 || len(inside.GetScripts()) != 1 ||
		inside.GetEnv()["WHERE"] != "inside" {
		t.Errorf("the agent inside has %v", inside)
	}

	for name, c := range map[string]struct{ more, want string }{
		"a name twice": {`resource "coder_devcontainer" "main" {
  agent_id         = coder_agent.main.id
  workspace_folder = "/w"
}`, "have the same name"},
		"too many": {`resource "coder_devcontainer" "more" {
  count            = 20
  agent_id         = coder_agent.main.id
  workspace_folder = "/w"
}`, "an agent can have 16"},
	} {
		j := newTrial(t, files(text+c.more))
		if result := j.importIt(e, &provisionerpb.TemplateImport{}); !strings.Contains(result.GetError(), c.want) {
			t.Errorf("%s: %q, want %q", name, result.GetError(), c.want)
		}
	}
}
