//go:build unix

package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/codermesh/codermesh/internal/fault"
)

// account is the user whom PostgreSQL runs as. Nil: whoever we are.
type account struct{ uid, gid uint32 }

// accounts are users without powers that most systems have, the fittest first.
var accounts = []string{"postgres", "nobody", "daemon"}

// unprivileged is nil unless we are root: then it is the user that owns the data folder, or the first of accounts.
func unprivileged(data string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	info, err := os.Stat(data)
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return &account{st.Uid, st.Gid}, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, folderFault(err, data)
	}
	for _, name := range accounts {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{uint32(uid), uint32(gid)}, nil
		}
	}
	return nil, fault.New(fault.Unavailable, "PostgreSQL does not run as root, and this machine has no user %q to run it as.", accounts[0]).
		WithDetail("Add the user (useradd --system postgres), or start the server as a user of its own.")
}

// attributes make a child run as the account, in a process group of its own: a terminal's Ctrl-C is for the server, which
// stops PostgreSQL when it no longer needs it.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// own gives the account a folder that is empty yet.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(dir, int(a.uid), int(a.gid))
}

// reaches reports whether the account may enter every folder on the way to path.
func (a *account) reaches(path string) bool {
	if a == nil {
		return true
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		bit := fs.FileMode(0o001)
		switch {
		case ok && st.Uid == a.uid:
			bit = 0o100
		case ok && st.Gid == a.gid:
			bit = 0o010
		}
		if info.Mode()&bit == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// acquire takes the lock file for this process. The kernel gives it back when the process ends.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, folderFault(err, filepath.Dir(path))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20)) // only to name it
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, folderFault(err, filepath.Dir(path))
		}
		return nil, fault.New(fault.Conflict, "Another server, process %s, already runs on %s.", holder, filepath.Dir(path)).
			WithDetail("Stop it, or give this one a folder of its own with CODER_CACHE_DIRECTORY.")
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Append(nil, os.Getpid()), 0)
	}
	if err != nil {
		f.Close()
		return nil, folderFault(err, filepath.Dir(path))
	}
	return f, nil
}

// giveBack ends the lock. Closing alone does not: a child between its fork and its exec has the file open, too.
func giveBack(lock *os.File) {
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_UN) // fails on a closed file only
	lock.Close()                                       // nothing was written since
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
