package embedded

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestOtherChildrenOutliveIt ends a child in the way that PostgreSQL ends when it crashes. Other children that are bound to
// this process, such as provider workers, must survive.
func TestOtherChildrenOutliveIt(t *testing.T) {
	for round := range 20 {
		// Start children from as many threads as possible.
		var others []*exec.Cmd
		for range 4 {
			other := exec.Command("sleep", "600")
			other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			others = append(others, other)
		}
		ended := make(chan error, 1)
		if err := startKept(exec.Command("true"), func(err error) { ended <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		// Nothing signals the goroutine's end. Starting another child of the same kind also needs a thread.
		if err := startKept(exec.Command("sleep", "0.01"), func(err error) { ended <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		for _, other := range others {
			if killed(other) {
				t.Errorf("round %d: another child was killed", round)
			}
			_ = other.Process.Kill()
			_ = other.Wait() // it was killed
		}
		if t.Failed() {
			return
		}
	}
}

// killed reports whether a child has ended unexpectedly.
func killed(cmd *exec.Cmd) bool {
	var info syscall.WaitStatus
	pid, err := syscall.Wait4(cmd.Process.Pid, &info, syscall.WNOHANG, nil)
	return err != nil || pid == cmd.Process.Pid
}
