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

// passesFolders says that an open folder can be given to a child as a path; it needs Linux's /proc.
const passesFolders = false

// endWithParent has no counterpart here: the next start stops what was left.
func endWithParent(*syscall.SysProcAttr) {}

// serves reports whether the process is a PostgreSQL over the data folder: it was started with that path.
func serves(pid int, data string) bool {
	out, err := output(context.Background(), "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid))
	return err == nil && strings.Contains(out, "postgres") && strings.Contains(out, data)
}

// secretFile makes a file that only a child's account can read, until release.
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
