package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepCapabilities keeps the capabilities that a service manager gave to this process, such as the one for ports below
// 1024, from the programs that it starts: bubblewrap refuses to run with them, and PostgreSQL and templates need none.
// What root has without a service manager is not concerned.
func keepCapabilities() error {
	held := false
	for capability := range uintptr(unix.CAP_LAST_CAP + 1) {
		set, _, _ := syscall.Syscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, capability, 0, 0,
			0)
		held = held || set == 1 // an error, for what this kernel does not know, is not 1
	}
	if !held {
		return nil
	}
	// Each thread has its own set, and a program that is started gets the set of the thread that starts it.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("clear ambient capabilities: %w", errno)
	}
	return nil
}
