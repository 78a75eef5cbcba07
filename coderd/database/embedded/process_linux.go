package embedded

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// passesFolders reports whether an open folder can be passed to a child as /proc/self/fd/3.
const passesFolders = true

// endWithParent makes the kernel stop PostgreSQL gracefully when this process ends.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// serves reports whether the process is a PostgreSQL on the data folder, which is then its working folder.
func serves(pid int, data string) bool {
	cwd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	return err == nil && cwd == data
}

// secretFile creates a file in memory that only a child can access, and returns its name in the child. Call release
// after starting the child.
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
