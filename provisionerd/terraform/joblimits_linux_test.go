package terraform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
)

// limited returns an executor with low limits for its jobs.
func limited(t *testing.T, limits host.JobLimits) *terraform.Executor {
	t.Helper()
	return newExecutor(t, func(o *terraform.Options) { o.JobLimits = limits })
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	e := limited(t, host.JobLimits{Timeout: 2 * time.Second})
	_, result := runScript(t, e, "exec sleep 600\n")
	if !strings.Contains(result.GetError(), "longer than 2s") || result.GetCanceled() {
		t.Errorf("the job ended with %q (canceled %v)", result.GetError(), result.GetCanceled())
	}
}

// TestDiskLimit makes one job fill its folders, in one file and in many, while another works.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	e := limited(t, host.JobLimits{Disk: 24 << 20})
	for name, script := range map[string]string{
		"one file":      "cat /dev/zero >ballast\n",
		"many files":    "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero >ballast$i || exit 1; done\n",
		"the home":      "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero >~/ballast$i || exit 1; done\n",
		"private /tmp":  "cat /dev/zero >/tmp/ballast\n",
		"shared memory": "cat /dev/zero >/dev/shm/ballast\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, result := runScript(t, e, script)
			if result.GetError() == "" {
				t.Fatal("the job wrote without end")
			}
			if strings.HasSuffix(name, "files") || name == "the home" {
				if !strings.Contains(result.GetError(), "more than 24 MiB of disk") {
					t.Errorf("the error does not say why: %s", result.GetError())
				}
			}
			if log, result := runScript(t, e, "head -c 8000000 /dev/zero >f\n"); result.GetError() != "" {
				t.Errorf("the next job: %s\n%s", result.GetError(), log)
			}
		})
	}
}

func TestMemoryAndProcessLimits(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testProcessLimitOfNamespaces(t) // a plain user has no control groups here
		return
	}
	e := limited(t, host.JobLimits{Memory: 512 << 20, Processes: 150})
	for _, concern := range e.Concerns() {
		t.Fatal(concern)
	}
	_, result := runScript(t, e, "head -c 3000000000 /dev/zero | tail -c 2900000000 >/dev/null; exit ${PIPESTATUS[1]}\n")
	if !strings.Contains(result.GetError(), "more than 512 MiB of memory") {
		t.Errorf("the job ended with %q", result.GetError())
	}
	mark := "88" + fmt.Sprint(os.Getpid()) + ".5"
	_, result = runScript(t, e, "for i in $(seq 600); do setsid sleep "+mark+" >/dev/null 2>&1 </dev/null & done; jobs -p | wc -l; exit 1\n")
	if !strings.Contains(result.GetError(), "more than 150 of the processes") {
		t.Errorf("the job ended with %q", result.GetError())
	}
	if left := processes(t, mark); len(left) > 0 {
		t.Errorf("%d processes outlive their job", len(left))
	}
	if log, result := runScript(t, e, "head -c 100000000 /dev/zero | tail -c 90000000 >/dev/null; for i in $(seq 20); do sleep 0.1 & done; wait\n"); result.GetError() != "" {
		t.Errorf("a job within its limits: %s\n%s", result.GetError(), log)
	}
}

// testProcessLimitOfNamespaces makes a job start as many processes as it can without control groups: it is bounded, its error gives a
// remedy, and neither a concurrent job nor the daemon's own account counts toward its limit.
func testProcessLimitOfNamespaces(t *testing.T) {
	t.Helper()
	const bound = 100
	e := newExecutor(t, func(o *terraform.Options) { o.Slots, o.JobLimits = 2, host.JobLimits{Processes: bound} })
	if got := strings.Join(e.Concerns(), "\n"); !strings.Contains(got, "and its processors not at all: ") {
		t.Fatalf("concerns %q", got)
	}
	const run = `
resource "terraform_data" "a" {
  provisioner "local-exec" {
    command = "sh ./script.sh"
  }
}
`
	attack := files(run)
	// Commands that start no process still work when no processes are left. Some are ended, because Terraform may need a thread.
	attack["script.sh"] = `
mkfifo gate
sh -c 'i=0; while [ $i -lt 1000 ]; do i=$((i+1)); sleep 600 >/dev/null 2>&1 </dev/null & echo $! >>pids; done'
n=0; while read pid; do n=$((n+1)); if [ $n -le 30 ]; then kill $pid; fi; done <pids
echo full-with=$n=$PWD
read line <gate
exit 1
`
	attacker := newTrial(t, attack)
	full := make(chan string, 1)
	attacker.sink.onLine = func(line string) {
		if _, at, ok := strings.Cut(line, "full-with="); ok {
			select {
			case full <- at:
			default:
			}
		}
	}
	ended := make(chan *provisionerpb.Result, 1)
	go func() { ended <- attacker.build(e, &provisionerpb.WorkspaceBuild{Transition: start}) }()
	var dir string
	select {
	case at := <-full:
		var started int
		if _, err := fmt.Sscanf(at, "%d=%s", &started, &dir); err != nil || started < 20 || started > bound {
			t.Errorf("the job reports %q, %v: want 20 to %d processes", at, err, bound)
		}
	case r := <-ended:
		t.Fatalf("the attack did not run: %s\n%s", r.GetError(), attacker.sink.text())
	}
	owners := files(run)
	owners["script.sh"] = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.1 & done; wait\n"
	owner := newTrial(t, owners)
	owner.slot = 1
	ok(t, owner, owner.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if err := os.WriteFile(filepath.Join(dir, "gate"), []byte("on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got := (<-ended).GetError(); !strings.Contains(got, fmt.Sprintf("may run %d processes and threads", bound)) || !strings.Contains(got, "--provisioner-job-processes") {
		t.Errorf("the job ended with %q", got)
	}
}
