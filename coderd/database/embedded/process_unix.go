//go:build unix && !linux

package embedded

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// passesFolders reports whether an open folder can be passed to a child as a path, which requires Linux's /proc.
const passesFolders = false

// endWithParent does nothing on this system: the next start stops a PostgreSQL that was left running.
func endWithParent(*syscall.SysProcAttr) {}

// serves reports whether the process is a PostgreSQL on the data folder: the path is in its command line.
func serves(pid int, data string) bool {
	out, err := output(context.Background(), "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid))
	return err == nil && strings.Contains(out, "postgres") && strings.Contains(out, data)
}

// secretFile creates a file that only a child's account can read, and that release removes.
func secretFile(_ *exec.Cmd, text string, reader *account) (name string, release func(), err error) {
	file, err := os.CreateTemp("", "codermesh-")
	if err != nil {
		return "", nil, err
	}
	release = func() { os.Remove(file.Name()) }
	_, err = file.WriteString(text)
	if err == nil && reader != nil {
		err = file.Chown(int(reader.uid), int(reader.gid))
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		release()
		return "", nil, err
	}
	return file.Name(), release, nil
}
