package embedded

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
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

// secretFile makes a file for a child alone, in memory, and returns the name that the child has for it. Call release after the
// child was started.
func secretFile(cmd *exec.Cmd, text string, _ *account) (name string, release func(), err error) {
	fd, err := unix.MemfdCreate("secret", unix.MFD_CLOEXEC)
	if err != nil {
		return "", nil, err
	}
	file := os.NewFile(uintptr(fd), "secret")
	if _, err := file.WriteString(text); err != nil {
		file.Close()
		return "", nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	return "/proc/self/fd/" + strconv.Itoa(2+len(cmd.ExtraFiles)), func() { file.Close() }, nil
}
