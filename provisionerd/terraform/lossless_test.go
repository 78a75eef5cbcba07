package terraform_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// statuses returns the managed resources in a state: "name" or "name tainted".
func statuses(t *testing.T, state []byte) []string {
	t.Helper()
	var s struct {
		Resources []struct {
			Mode, Name string
			Instances  []struct{ Status string }
		}
	}
	if err := json.Unmarshal(state, &s); err != nil {
		t.Fatalf("%v in the state %q", err, state)
	}
	var all []string
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if r.Mode == "managed" {
				all = append(all, strings.TrimSpace(r.Name+" "+i.Status))
			}
		}
	}
	slices.Sort(all)
	return all
}

// accounted checks the promise about an interrupted job: each resource that was begun is in the state and complete, or it is in the state
// and tainted and named, or it is named as unknown.
func accounted(t *testing.T, j *trial, result *provisionerpb.Result, names ...string) {
	t.Helper()
	built := result.GetWorkspaceBuild()
	var has []string
	if len(built.GetState()) > 0 {
		has = statuses(t, built.GetState())
	}
	last := map[string]*provisionerpb.Change{}
	j.sink.mu.Lock()
	for _, c := range j.sink.changes {
		last[c.GetAddress()] = c
	}
	j.sink.mu.Unlock()
	for _, name := range names {
		address := "terraform_data." + name
		began, ended := last[address] != nil, last[address].GetEnd() == provisionerpb.Change_END_COMPLETE
		tainted := slices.Contains(has, name+" tainted") && slices.Contains(built.GetTainted(), address) && strings.Contains(result.GetError(), address)
		named := slices.Contains(built.GetUnknown(), address) && strings.Contains(result.GetError(), address)
		if fine := slices.Contains(has, name) && ended; began && !fine && !tainted && !named {
			t.Errorf("%s was begun (ended %t) and is lost: the state has %q, unknown %q, tainted %q, error %q", address, ended, has, built.GetUnknown(), built.GetTainted(), result.GetError())
		} else if fine && (named || strings.Contains(result.GetError(), address+",") || strings.Contains(result.GetError(), address+".")) {
			t.Errorf("%s is complete in the state and named: %q", address, result.GetError())
		}
	}
}

// halfMade returns a template whose resource b is in Terraform's state while its provisioner waits for a file.
func halfMade(dir string) map[string]string {
	return files(fmt.Sprintf(`
resource "terraform_data" "a" {}
resource "terraform_data" "b" {
  provisioner "local-exec" {
    command = "touch %[1]s/began; echo waiting pid=$PPID; while [ ! -e %[1]s/gate ]; do sleep 0.02; done"
  }
}
resource "terraform_data" "c" {
  provisioner "local-exec" {
    command = "while [ ! -e %[1]s/began ]; do sleep 0.02; done"
  }
}
`, dir))
}

// TestHalfMadeIsTainted: Terraform is killed between a resource's creation and the end of its provisioner. The resource is marked as
// tainted, named, and replaced by the next build, whose log reports it.
func TestHalfMadeIsTainted(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(o *terraform.Options) { o.Isolation = "none" }) // the test shares files and process numbers with the job
	dir := t.TempDir()
	j := newTrial(t, halfMade(dir))
	var mu sync.Mutex
	pid, written := 0, false
	kill := func() {
		if pid > 1 && written {
			if err := end(pid); err != nil {
				t.Errorf("kill terraform: %v", err)
			}
			pid = 0
		}
	}
	j.sink.onLine = func(line string) {
		if _, text, found := strings.Cut(line, "waiting pid="); found && !strings.Contains(line, "$PPID") {
			mu.Lock()
			defer mu.Unlock()
			number, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Error(err)
			}
			pid = number
			kill()
		}
	}
	j.sink.onCheckpoint = func(state []byte) {
		mu.Lock()
		defer mu.Unlock()
		written = written || slices.Contains(statuses(t, state), "b")
		kill()
	}
	result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
	built := result.GetWorkspaceBuild()
	if has := statuses(t, built.GetState()); !slices.Contains(has, "b tainted") || !slices.Contains(built.GetTainted(), "terraform_data.b") {
		t.Errorf("the state has %q, tainted are %q\n%s", has, built.GetTainted(), j.sink.text())
	}
	accounted(t, j, result, "a", "b", "c")
	touch(t, filepath.Join(dir, "gate"))
	old := attribute(t, built.GetState(), "b", "id")
	next := newTrial(t, halfMade(dir))
	again := ok(t, next, next.build(e, &provisionerpb.WorkspaceBuild{Transition: start, State: built.GetState(), Tainted: built.GetTainted(), Unknown: []string{"x.y"}}))
	if diff := cmp.Diff([]string{"a", "b", "c"}, statuses(t, again.GetState())); diff != "" {
		t.Errorf("state of the next build (-want +got):\n%s", diff)
	}
	if attribute(t, again.GetState(), "b", "id") == old || attribute(t, again.GetState(), "a", "id") != attribute(t, built.GetState(), "a", "id") {
		t.Error("the next build did not make the half-made resource anew, and only that")
	}
	for _, want := range []string{"may be made a second time: x.y.", "They are made anew: " + strings.Join(built.GetTainted(), ", ") + "."} {
		if !strings.Contains(next.sink.text(), want) {
			t.Errorf("the next build's log does not say %q:\n%s", want, next.sink.text())
		}
	}
}

// TestFailedProvisionerIsNamed: Terraform itself taints a resource whose provisioner fails or is interrupted. The build names it as it names
// those that the provisioner daemon marks.
func TestFailedProvisionerIsNamed(t *testing.T) {
	t.Parallel()
	for how, command := range map[string]string{"canceled": "echo waiting; sleep 3600", "failed": "exit 3"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t) // both jobs run in its first slot
			j := newTrial(t, files(fmt.Sprintf(`
resource "terraform_data" "fine" {}
resource "terraform_data" "slow" {
  for_each = { "a b" = terraform_data.fine.id }
  provisioner "local-exec" {
    command = %q
  }
}
`, command)))
			var once sync.Once
			j.sink.onLine = func(line string) {
				if strings.HasSuffix(line, "waiting") {
					once.Do(func() { close(j.stop) })
				}
			}
			result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
			built := result.GetWorkspaceBuild()
			const slow = `terraform_data.slow["a b"]`
			if diff := cmp.Diff([]string{slow}, built.GetTainted()); diff != "" {
				t.Errorf("tainted (-want +got):\n%s", diff)
			}
			if result.GetCanceled() != (how == "canceled") || !strings.Contains(result.GetError(), "made anew by the next build: "+slow+".") {
				t.Errorf("canceled %v, error %q", result.GetCanceled(), result.GetError())
			}
			if diff := cmp.Diff([]string{"fine", "slow tainted"}, statuses(t, built.GetState())); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStateFileIsNoFile: a template puts something else where the daemon expects a state. The daemon does not follow it or wait for it; the
// job fails with the reason and keeps the true state.
func TestStateFileIsNoFile(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "state")
	foreign := `{"version":4,"terraform_version":"1.0.0","serial":9999,"lineage":"of-another","outputs":{"o":{"value":"SECRET-OF-ANOTHER","type":"string"}},"resources":[]}`
	if err := os.WriteFile(secret, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t)
	for what, command := range map[string]string{"a link": "ln -s " + secret + " errored.tfstate", "a pipe": "mkfifo errored.tfstate"} {
		j := newTrial(t, files(fmt.Sprintf("resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = %q\n  }\n}\n", command)))
		ended := make(chan *provisionerpb.Result, 1)
		go func() { ended <- j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}) }()
		var result *provisionerpb.Result
		select {
		case result = <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s: it holds the job's end up", what)
		}
		state := result.GetWorkspaceBuild().GetState()
		if strings.Contains(string(state), "SECRET-OF-ANOTHER") {
			t.Errorf("%s: the build's state is another's file", what)
		}
		if diff := cmp.Diff([]string{"a"}, statuses(t, state)); diff != "" {
			t.Errorf("%s: state (-want +got):\n%s", what, diff)
		}
		if !strings.Contains(result.GetError(), "errored.tfstate: it is not a regular file") {
			t.Errorf("%s: error %q", what, result.GetError())
		}
	}
}

// end kills a process.
func end(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
