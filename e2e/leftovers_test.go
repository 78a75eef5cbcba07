package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// programs returns the folders below /tmp that the start scripts of this deployment's agents made, by the process ids of their keepers.
func (d *deployment) programs() map[int]string {
	found := map[int]string{}
	for pid, environ := range d.processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		args := strings.Split(string(line), "\x00")
		if err == nil && len(args) > 1 && args[1] == "agent" && !strings.Contains(environ, "CODER_AGENT_CHILD=1") {
			found[pid] = filepath.Dir(program)
		}
	}
	return found
}

// TestKilledAgentLeavesNothing: the files that a killed agent left in the temporary folder are removed when its workspace stops, and when
// an agent starts. The folders of another agent on the same machine stay.
func TestKilledAgentLeavesNothing(t *testing.T) {
	t.Parallel()
	d := deploy(t, "--provisioner-isolation", "none")
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "coder"))
		return err == nil
	}
	var keepers []int
	folders := map[int]string{}
	for n, name := range []string{"living", "stopped", "lost"} {
		d.coder("create", name, "-t", "process", "-y")
		testwait.Until(t, "the agent of "+name+" runs", func() error {
			folders = d.programs()
			return testwait.Unless(len(folders) == n+1, "programs %v, want %d", folders, n+1)
		})
		for pid := range folders {
			if !slices.Contains(keepers, pid) {
				keepers = append(keepers, pid)
			}
		}
	}
	living, stopped, lost := folders[keepers[0]], folders[keepers[1]], folders[keepers[2]]
	for _, dir := range folders {
		if !strings.HasPrefix(dir, "/tmp/coder.") || !has(dir) {
			t.Fatalf("folders of programs: %v", folders)
		}
	}
	for _, keeper := range keepers[1:] {
		signal(t, keeper, syscall.SIGKILL)
	}
	testwait.Until(t, "the agents of killed keepers end", d.runsAgents(1))
	d.coder("stop", "stopped", "-y")
	if has(stopped) {
		t.Error("the stopped workspace's folder is still there")
	}
	if has(lost) { // of the same account
		t.Error("the lost agent's folder is still there")
	}

	// If the workspace is not a process of the provisioner, only its next agent can do it.
	d.coder("start", "stopped", "-y")
	testwait.Until(t, "the second agent runs", func() error {
		programs := d.programs()
		return testwait.Unless(len(programs) == 2, "programs %v, want two", programs)
	})
	for pid, dir := range d.programs() {
		if dir != living {
			signal(t, pid, syscall.SIGKILL)
			stopped = dir
		}
	}
	testwait.Until(t, "the agent of the killed keeper ends", d.runsAgents(1))
	for _, agent := range d.agents() {
		signal(t, agent, syscall.SIGKILL) // its keeper starts another one
	}
	testwait.Until(t, "the next agent has removed the killed one's folder", func() error {
		entries, err := os.ReadDir(stopped)
		return testwait.Unless(!has(stopped), "%s has %v (%v)", stopped, entries, err)
	})
	if !has(living) || d.coder("ssh", "living", "--", "echo $((6*7))") != "42\n" {
		t.Error("the living agent has lost its folder")
	}
}
