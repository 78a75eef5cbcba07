package embedded

import (
	"os"
	"strconv"
	"syscall"
)

// passesFolders says that an open folder can be given to a child as /proc/self/fd/3.
const passesFolders = true

// endWithParent makes the kernel stop PostgreSQL, in order, when this process ends.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// serves reports whether the process is a PostgreSQL over the data folder: that is its working folder.
func serves(pid int, data string) bool {
	cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return err == nil && cwd == data
}
