package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"golang.org/x/sys/unix"
)

// TestCgroupKill kills a process of a version 2 control group that left its session, and its child. Processes of another group survive.
func TestCgroupKill(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount control groups")
	}
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	// start runs a process and its child in a group of their own. Its standard output ends when both have ended.
	start := func(name string) (*cgroup, *exec.Cmd, *os.File) {
		dir := filepath.Join(root, fmt.Sprintf("codermesh-test-%d-%s", os.Getpid(), name))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		held, holds, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer holds.Close()
		cmd := exec.Command("sh", "-c", "trap '' INT TERM; sleep 600 & wait")
		cmd.Stdout = holds
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: fd}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c := &cgroup{v2: true, memory: dir}
		t.Cleanup(func() {
			if err := c.kill(); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // it was killed
			if _, err := held.Read(make([]byte, 1)); err == nil {
				t.Error("a killed process writes")
			}
			held.Close()
			// A dying process closes its files before it leaves its group.
			testwait.Until(t, "the group is empty", func() error {
				events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
				if err == nil && bytes.Contains(events, []byte("populated 1")) {
					err = errors.New("a process is in it")
				}
				return err
			})
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		return c, cmd, held
	}
	doomed, process, held := start("doomed")
	_, other, _ := start("other")
	if err := doomed.kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); err == nil { // until both have ended
		t.Error("a killed process writes")
	}
	_ = process.Wait()
	if status := process.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v", process.ProcessState)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process of another group: %v", err)
	}
	if err := (&cgroup{}).kill(); err != nil {
		t.Errorf("without version 2: %v", err)
	}
}
