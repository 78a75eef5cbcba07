package terraform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
)

// processWorkspace is a workspace that is a process of this host and runs a script.
type processWorkspace struct {
	home, log string
	state     []byte
	metadata  *provisionerpb.Metadata
	template  map[string]string
	id        uuid.UUID
}

// startProcess starts a workspace whose process is a script, with more flags of workspace-process.
func startProcess(t *testing.T, e *terraform.Executor, workspaces, flags, script string) (processWorkspace, *provisionerpb.Result) {
	t.Helper()
	w := processWorkspace{metadata: metadata(), id: uuid.New()}
	w.metadata.WorkspaceId = w.id[:]
	w.home = filepath.Join(workspaces, w.id.String(), "home")
	w.log = filepath.Join(workspaces, w.id.String(), "agent.log")
	w.template = files(fmt.Sprintf(`
data "coder_workspace" "me" {}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "exec \"$CODER_PROVISIONER_PROGRAM\" workspace-process start %s -- /bin/bash -c \"$(cat script.sh)\""
  }
}
`, flags))
	w.template["script.sh"] = script
	j := newTrial(t, w.template)
	result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start, Metadata: w.metadata})
	w.state = result.GetWorkspaceBuild().GetState()
	return w, result
}

// remove deletes the workspace.
func (w processWorkspace) remove(t *testing.T, e *terraform.Executor) {
	t.Helper()
	j := newTrial(t, w.template)
	ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: remove, Metadata: w.metadata, State: w.state}))
}

// said waits until the workspace has written a whole line to a file of its home folder, and returns it.
func (w processWorkspace) said(t *testing.T, name string) string {
	t.Helper()
	var text []byte
	testwait.Until(t, "the workspace writes "+name, func() (err error) {
		text, err = os.ReadFile(filepath.Join(w.home, name))
		return testwait.Unless(strings.HasSuffix(string(text), "\n"), "it has %q (%v)", text, err)
	})
	return strings.TrimSpace(string(text))
}

// TestWorkspaceThatCannotStart: who starts a workspace reads why its program does not run, which the provisioner's own log has.
func TestWorkspaceThatCannotStart(t *testing.T) {
	settings := map[string]func(*terraform.Options){"bubblewrap": func(*terraform.Options) {}}
	if os.Geteuid() == 0 {
		settings["accounts alone"] = func(o *terraform.Options) { *o = withoutBubblewrap(t) }
	}
	for name, change := range settings {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			change(&opts)
			e := newExecutor(t, func(o *terraform.Options) { *o = opts })
			w, result := startProcess(t, e, opts.WorkspacesDir, "-- /opt/no/agent #", "")
			if want := "run /opt/no/agent: no such file or directory"; !strings.Contains(result.GetError(), want) {
				t.Errorf("the build says %q, want %q", result.GetError(), want)
			}
			w.remove(t, e)
		})
	}
}

// TestWorkspaceLimits lets a workspace start processes, and fill memory, temporary folders and its log without end.
func TestWorkspaceLimits(t *testing.T) {
	settings := map[string]bool{"bubblewrap": false}
	if os.Geteuid() == 0 {
		settings["accounts alone"] = true
	}
	for name, alone := range settings {
		t.Run(name, func(t *testing.T) {
			opts := options(t)
			if alone {
				opts = withoutBubblewrap(t)
			}
			opts.WorkspaceLimits = host.WorkspaceLimits{Memory: 256 << 20, Processes: 120, Temporary: 16 << 20}
			e := newExecutor(t, func(o *terraform.Options) { *o = opts })
			mark := "44" + strings.ReplaceAll(uuid.NewString(), "-", "")[:8]
			testWorkspaceLimits(t, e, opts.WorkspacesDir, alone, mark)
			if left := processes(t, mark); len(left) > 0 {
				t.Errorf("%d processes outlive their workspace", len(left))
			}
		})
	}
}

func testWorkspaceLimits(t *testing.T, e *terraform.Executor, workspaces string, alone bool, mark string) {
	t.Helper()
	// Without a process to spare, the shell still has its own commands.
	const bomb = `
sh -c 'i=0; while [ $i -lt 1000 ]; do i=$((i+1)); MARK=%s sleep 600 >/dev/null 2>&1 </dev/null & echo $! >>~/pids; done' 2>/dev/null
n=0; while read pid; do n=$((n+1)); done <~/pids
echo $n >~/processes
exec sleep 600
`
	for flags, bound := range map[string]int{"": 120, "--processes 60": 60} {
		w, result := startProcess(t, e, workspaces, flags, fmt.Sprintf(bomb, mark))
		if result.GetError() != "" {
			t.Fatal(result.GetError())
		}
		if n, err := strconv.Atoi(w.said(t, "processes")); err != nil || n < bound/4 || n > bound {
			t.Errorf("with %q the workspace started %d processes, %v", flags, n, err)
		}
		w.remove(t, e)
		for _, group := range []string{"pids/codermesh-workspace-", "codermesh-workspace-"} {
			if _, err := os.Stat("/sys/fs/cgroup/" + group + w.id.String()); err == nil {
				t.Errorf("the control group %s is left", group)
			}
		}
	}
	hungry := `
head -c 3000000000 /dev/zero | tail -c 2900000000 >/dev/null 2>&1; echo ${PIPESTATUS[1]} >~/memory
head -c 100000000 /dev/zero | tail -c 50000000 >/dev/null; echo ${PIPESTATUS[1]} >~/little
head -c 40000000 /dev/zero >/tmp/ballast 2>~/full; echo "$(stat -c %s /tmp/ballast) $(cat ~/full)" >~/tmp
rm /tmp/ballast
yes line | head -c 40000000; echo LAST
exec sleep 600
`
	if alone { // the host's folder would be filled
		hungry = strings.ReplaceAll(hungry, "/tmp/ballast", "/dev/null")
	}
	w, result := startProcess(t, e, workspaces, "", hungry)
	if result.GetError() != "" {
		t.Fatal(result.GetError())
	}
	if got := w.said(t, "memory"); got == "0" {
		t.Error("the workspace used more memory than allowed")
	}
	if got := w.said(t, "little"); got != "0" {
		t.Errorf("the workspace within its memory: status %s", got)
	}
	if got := w.said(t, "tmp"); !alone {
		size, problem, _ := strings.Cut(got, " ")
		if n, err := strconv.Atoi(size); err != nil || n > 16<<20 || !strings.Contains(problem, "No space left") {
			t.Errorf("filling /tmp: %s, %v", got, err)
		}
	}
	testwait.Until(t, "the log ends with the last line", func() error {
		info, err := os.Stat(w.log)
		if err != nil || info.Size() > 16<<20 {
			t.Fatalf("the log: %v, %v", info, err)
		}
		text, err := os.ReadFile(w.log)
		return testwait.Unless(err == nil && strings.HasSuffix(string(text), "line\nLAST\n"), "it ends with %q (%v)", text[max(0, len(text)-100):], err)
	})
	w.remove(t, e)
	for flag, want := range map[string]string{
		"--memory 1GiB": "1 GiB of memory for its workspace, and this provisioner allows 256 MiB", "--processes 121": "allows 120", "--tmp 1GiB": "--provisioner-workspace-tmp",
		"--memory much": "is not a size",
	} {
		_, result := startProcess(t, e, workspaces, flag, "exit 1")
		if got := result.GetError(); !strings.Contains(got, want) {
			t.Errorf("%s: %q", flag, got)
		}
	}
}
