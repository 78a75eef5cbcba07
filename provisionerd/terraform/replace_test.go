package terraform_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// keeping is a template with a disk that depends on a parameter, and a machine that exists only while the workspace runs.
const keeping = `
data "coder_workspace" "me" {}
data "coder_parameter" "zone" {
  name    = "zone"
  default = "fra1"
  mutable = true
}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "disk" {
  for_each         = toset(["home"])
  triggers_replace = data.coder_parameter.zone.value
}
resource "terraform_data" "machine" {
  count            = data.coder_workspace.me.start_count
  triggers_replace = [coder_agent.main.token, "image 1"]
}
`

// always is a resource that each build replaces.
const always = `
resource "terraform_data" "hook" {
  triggers_replace = timestamp()
}
`

// starts runs builds of templates that share a workspace.
type starts struct {
	*testing.T
	executor job.Executor
	build    func(source string, work *provisionerpb.WorkspaceBuild) (*trial, *provisionerpb.Result)
}

func newStarts(t *testing.T) starts {
	t.Helper()
	e := newExecutor(t)
	return starts{t, e, func(source string, work *provisionerpb.WorkspaceBuild) (*trial, *provisionerpb.Result) {
		j := newTrial(t, files(source))
		return j, j.build(e, work)
	}}
}

func (s starts) ok(source string, work *provisionerpb.WorkspaceBuild) []byte {
	s.Helper()
	j, result := s.build(source, work)
	return ok(s, j, result).GetState()
}

// refused checks that a build ends before it changes anything because of the wanted resources.
func (s starts) refused(source string, work *provisionerpb.WorkspaceBuild, want ...string) *provisionerpb.BuildResult {
	s.Helper()
	j, result := s.build(source, work)
	built := result.GetWorkspaceBuild()
	if result.GetErrorCode() != "REPLACES_RESOURCES" || !slices.Equal(built.GetReplaces(), want) {
		s.Fatalf("error %q (%s), replaces %q, want %q\n%s", result.GetError(), result.GetErrorCode(), built.GetReplaces(), want, j.sink.text())
	}
	for _, addr := range want {
		if !strings.Contains(result.GetError(), addr) {
			s.Errorf("error %q does not name %s", result.GetError(), addr)
		}
	}
	if string(built.GetState()) != string(work.GetState()) || strings.Contains(j.sink.text(), "Destroying...") {
		s.Errorf("the refused build changed something:\n%s\n%s", j.sink.text(), built.GetState())
	}
	return built
}

func zone(name string) []*provisionerpb.ParameterValue {
	return []*provisionerpb.ParameterValue{{Name: "zone", Value: name}}
}

// TestStartKeepsData: a start replaces or deletes what the workspace keeps only with permission for each resource.
func TestStartKeepsData(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	const disk = `terraform_data.disk["home"]`
	running := s.ok(keeping, &provisionerpb.WorkspaceBuild{Transition: start, Replacement: &provisionerpb.Replacement{}})
	stopped := s.ok(keeping, &provisionerpb.WorkspaceBuild{Transition: stop, State: running})
	id := attribute(t, stopped, "disk", "id")
	asked := func(state []byte, stopped bool, allowed ...string) *provisionerpb.WorkspaceBuild {
		return &provisionerpb.WorkspaceBuild{
			Transition: start, State: state, Parameters: zone("muc1"), Replacement: &provisionerpb.Replacement{Stopped: stopped, Allowed: allowed},
		}
	}

	if built := s.refused(keeping, asked(stopped, true), disk); len(built.GetResources()) > 0 {
		t.Errorf("a stopped workspace has %s", shapeOf(built.GetResources()))
	}
	if built := s.refused(keeping, asked(running, false), disk); !strings.Contains(shapeOf(built.GetResources()), "(main)") {
		t.Errorf("the running workspace lost its agent: %s", shapeOf(built.GetResources()))
	}
	moved := s.ok(keeping, asked(stopped, true, disk))
	if got := attribute(t, moved, "disk", "id"); got == id {
		t.Error("the start with permission kept the disk")
	}

	// Starts that keep it need no permission, and replace what exists only while the workspace runs.
	for name, work := range map[string]*provisionerpb.WorkspaceBuild{
		"stopped": {Transition: start, State: stopped, Replacement: &provisionerpb.Replacement{Stopped: true}},
		"running": {Transition: start, State: running, Replacement: &provisionerpb.Replacement{}},
	} {
		kept := s.ok(strings.Replace(keeping, "image 1", "image 2", 1), work)
		if attribute(t, kept, "disk", "id") != id || attribute(t, kept, "machine", "id") == attribute(t, running, "machine", "id") {
			t.Errorf("%s: the start has not replaced the machine alone:\n%s", name, kept)
		}
	}

	// Permission is for the listed resources, and the answer lists all.
	two := strings.Replace(keeping, `["home"]`, `["home", "cache"]`, 1)
	both := s.ok(two, &provisionerpb.WorkspaceBuild{Transition: stop, State: s.ok(two, &provisionerpb.WorkspaceBuild{Transition: start})})
	s.refused(two, asked(both, true, disk), `terraform_data.disk["cache"]`, disk)

	// The template no longer has the disk.
	before, rest, _ := strings.Cut(keeping, `resource "terraform_data" "disk"`)
	const machine = `resource "terraform_data" "machine"`
	_, machines, _ := strings.Cut(rest, machine)
	gone := before + machine + machines
	s.refused(gone, &provisionerpb.WorkspaceBuild{Transition: start, State: stopped, Replacement: &provisionerpb.Replacement{Stopped: true}}, disk)
	s.refused(gone, &provisionerpb.WorkspaceBuild{Transition: start, State: running, Replacement: &provisionerpb.Replacement{}}, disk)

	// What every build makes anew holds no data: the stop has just created it.
	j, result := s.build(keeping+always, &provisionerpb.WorkspaceBuild{Transition: stop, State: running})
	anew := ok(t, j, result)
	if want := []string{"terraform_data.hook"}; !slices.Equal(anew.GetCreated(), want) {
		t.Errorf("the stop created %q, want %q", anew.GetCreated(), want)
	}
	work := &provisionerpb.WorkspaceBuild{Transition: start, State: anew.GetState(), Replacement: &provisionerpb.Replacement{Stopped: true}}
	s.refused(keeping+always, work, "terraform_data.hook")
	work.Replacement.Fresh = anew.GetCreated()
	s.ok(keeping+always, work)

	// A disk whose creation did not finish holds nothing, and a start without the message may do everything.
	tainted := strings.Replace(string(stopped), `"index_key": "home",`, `"index_key": "home", "status": "tainted",`, 1)
	if !strings.Contains(tainted, "tainted") {
		t.Fatalf("unexpected state %s", stopped)
	}
	s.ok(keeping, asked([]byte(tainted), true))
	s.ok(keeping, &provisionerpb.WorkspaceBuild{Transition: start, State: stopped, Parameters: zone("muc1")})
}

// TestStopKeepsData: a stop, too, replaces or deletes what the workspace keeps only with permission for each resource. Most of all it must stop a
// workspace that nothing was changed of.
func TestStopKeepsData(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	const (
		disk  = `terraform_data.disk["home"]`
		token = `
resource "terraform_data" "script" {
  triggers_replace = { token = coder_agent.main.token }
}
`
	)
	running := s.ok(keeping, &provisionerpb.WorkspaceBuild{Transition: start})
	id := attribute(t, running, "disk", "id")
	stops := func(state []byte, values []*provisionerpb.ParameterValue, r *provisionerpb.Replacement) *provisionerpb.WorkspaceBuild {
		return &provisionerpb.WorkspaceBuild{Transition: stop, State: state, Parameters: values, Replacement: r}
	}
	same := &provisionerpb.Replacement{Same: true}
	changed := func(allowed ...string) *provisionerpb.Replacement {
		return &provisionerpb.Replacement{Allowed: allowed}
	}
	kept := func(what string, state []byte) {
		t.Helper()
		if attribute(t, state, "disk", "id") != id || strings.Contains(string(state), `"machine"`) {
			t.Errorf("%s: the stop has not removed the machine alone:\n%s", what, state)
		}
	}

	// Stops that change nothing else.
	kept("same version", s.ok(keeping, stops(running, nil, same)))
	kept("another version", s.ok(strings.Replace(keeping, "image 1", "image 2", 1), stops(running, nil, changed())))

	// Another value, and another version.
	built := s.refused(keeping, stops(running, zone("muc1"), changed()), disk)
	if !strings.Contains(shapeOf(built.GetResources()), "(main)") {
		t.Errorf("the running workspace lost its agent: %s", shapeOf(built.GetResources()))
	}
	two := strings.Replace(keeping, `["home"]`, `["home", "cache"]`, 1)
	s.refused(two, stops(s.ok(two, &provisionerpb.WorkspaceBuild{Transition: start}), zone("muc1"), changed(disk)), `terraform_data.disk["cache"]`, disk)
	before, rest, _ := strings.Cut(keeping, `resource "terraform_data" "disk"`)
	const machine = `resource "terraform_data" "machine"`
	_, machines, _ := strings.Cut(rest, machine)
	gone := before + machine + machines
	s.refused(gone, stops(running, nil, changed()), disk)
	s.refused(strings.Replace(keeping, `"home"`, `"other"`, 1), stops(running, nil, changed()), disk)
	if moved := s.ok(keeping, stops(running, zone("muc1"), changed(disk))); attribute(t, moved, "disk", "id") == id {
		t.Error("the stop with permission kept the disk")
	}
	s.ok(gone, stops(running, nil, changed(disk)))
	s.ok(keeping, stops(running, zone("muc1"), nil))

	// A workspace that is stopped has only what is kept.
	stopped := s.ok(keeping, stops(running, nil, same))
	s.refused(gone, stops(stopped, nil, &provisionerpb.Replacement{Stopped: true}), disk)

	// Something outside changed, such as the newest image of a machine that is kept.
	s.refused(strings.Replace(keeping, "data.coder_parameter.zone.value", `"another"`, 1), stops(running, nil, same), disk)

	// What every build makes anew keeps nothing.
	anew := keeping + always + token
	again := s.ok(anew, &provisionerpb.WorkspaceBuild{Transition: start, State: running})
	kept("made anew", s.ok(anew, stops(again, nil, same)))
	kept("made anew, by another version", s.ok(strings.Replace(anew, "image 1", "image 2", 1), stops(again, nil, changed())))
	// A disk that is replaced for a value that depends on one that changed is not made anew by every build.
	chain := strings.Replace(keeping, "data.coder_parameter.zone.value", "coder_script.zone.id", 1) + `
resource "coder_script" "zone" {
  agent_id     = coder_agent.main.id
  display_name = "zone"
  script       = data.coder_parameter.zone.value
  run_on_start = true
  lifecycle {
    replace_triggered_by = [terraform_data.zone]
  }
}
resource "terraform_data" "zone" {
  triggers_replace = data.coder_parameter.zone.value
}
`
	linked := s.ok(chain, &provisionerpb.WorkspaceBuild{Transition: start})
	s.refused(chain, stops(linked, zone("muc1"), changed("terraform_data.zone")), disk, "terraform_data.zone")
}
