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
	"slices"
	"strconv"
	"syscall"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// account is the user that PostgreSQL runs as. Nil means the user of this process.
type account struct{ uid, gid uint32 }

// If a machine has no user postgres, PostgreSQL runs as the first of these user ids that no user has. systemd's
// documentation leaves them unused, and they are within the range of a container.
const (
	firstNumber = 61100
	lastNumber  = 61183
)

// makers are users that run PostgreSQL's programs for a single task if the folder belongs to a user id without a name:
// these programs require a name for the account that they run as.
var makers = []string{"daemon", "bin", "sys", "adm", "games"}

// unprivileged returns nil unless this process is root. Otherwise it returns the user that owns the data folder, unless
// that user is shared, or the user postgres, or a user id reserved for PostgreSQL. maker is the user that runs initdb;
// nil means the same user.
func unprivileged(data string) (acc, maker *account, err error) {
	if os.Geteuid() != 0 {
		return nil, nil, nil
	}
	info, err := os.Stat(data)
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && !isShared(st.Uid) {
			return &account{st.Uid, st.Gid}, nil, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, folderFault(err, data)
	}
	if acc := named("postgres"); acc != nil {
		return acc, nil, nil
	}
	for _, name := range makers {
		if maker = named(name); maker != nil {
			break
		}
	}
	for number := uint32(firstNumber); maker != nil && number <= lastNumber; number++ {
		if _, err := user.LookupId(strconv.Itoa(int(number))); errors.As(err, new(user.UnknownUserIdError)) {
			return &account{number, number}, maker, nil
		}
	}
	return nil, nil, fault.New(fault.Unavailable, "PostgreSQL cannot run as root, and this machine has no user postgres.").
		WithDetail("Add the user (useradd --system postgres), or run the server as a user other than root.")
}

// named returns a user's account, or nil if there is none or it is root's.
func named(name string) *account {
	u, err := user.Lookup(name)
	if err != nil {
		return nil
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if uidErr != nil || gidErr != nil || uid == 0 {
		return nil
	}
	return &account{uint32(uid), uint32(gid)}
}

// isShared reports whether other programs run as a user, as many do as `nobody`. PostgreSQL never runs as such a user.
// It takes over data folders that older releases created as one, or that a task left behind.
func isShared(uid uint32) bool {
	return slices.ContainsFunc(append([]string{"nobody"}, makers...), func(name string) bool {
		acc := named(name)
		return acc != nil && acc.uid == uid
	})
}

// takeOver gives the account ownership of a folder and everything in it. The folder itself comes last, so that an
// interrupted takeover is repeated. A missing folder is not an error.
func (a *account) takeOver(dir string) error {
	if a == nil {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == a.uid {
		return nil
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return root.Lchown(name, int(a.uid), int(a.gid))
	})
	if err != nil {
		return err
	}
	return root.Lchown(".", int(a.uid), int(a.gid))
}

// attributes returns attributes with which a child runs as the account, in a process group of its own: a terminal's
// Ctrl-C is meant for the server, which stops PostgreSQL when it no longer needs it.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// own gives the account ownership of an empty folder.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(dir, int(a.uid), int(a.gid))
}

// reaches reports whether the account may enter every folder in path.
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

// acquire locks the lock file for this process. The kernel releases the lock when the process ends.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, folderFault(err, filepath.Dir(path))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20)) // only to name it in the error
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, folderFault(err, filepath.Dir(path))
		}
		return nil, fault.New(fault.Conflict, "Another server, process %s, already runs on %s.", holder, filepath.Dir(path)).
			WithDetail("Stop it, or give this one its own folder with --global-config.")
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

// giveBack releases the lock. Closing the file is not enough: a child between its fork and its exec also has it open.
func giveBack(lock *os.File) {
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_UN) // fails only on a closed file
	lock.Close()                                       // nothing was written since acquire returned
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
