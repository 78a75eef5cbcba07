package proc

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// isIgnored returns a function that reports whether this process ignores a signal. It asks the kernel (proc(5)),
// because the runtime knows only some.
func isIgnored() func(syscall.Signal) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return runtimeIgnores
	}
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:\t")
	hex, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return runtimeIgnores
	}
	return func(sig syscall.Signal) bool { return mask>>(sig-1)&1 != 0 }
}
