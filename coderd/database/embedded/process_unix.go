//go:build unix && !linux

package embedded

import (
	"context"
	"strconv"
	"strings"
	"syscall"
)

// passesFolders says that an open folder can be given to a child as a path; it needs Linux's /proc.
const passesFolders = false

// endWithParent has no counterpart here: the next start stops what was left.
func endWithParent(*syscall.SysProcAttr) {}

// serves reports whether the process is a PostgreSQL over the data folder: it was started with that path.
func serves(pid int, data string) bool {
	out, err := output(context.Background(), "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid))
	return err == nil && strings.Contains(out, "postgres") && strings.Contains(out, data)
}
