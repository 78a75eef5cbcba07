//go:build unix

package secret

import (
	"io/fs"
	"os"
	"syscall"
)

// isOwn reports whether this account owns a file.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
