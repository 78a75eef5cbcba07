package proc

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// isIgnored tells which signals this process ignores: the kernel knows (proc(5)), the runtime knows of some only.
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
