package laptop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

func keeperLock(dir string) string { return filepath.Join(dir, "lock") }
func serverLock(dir string) string { return filepath.Join(dir, "server.lock") }

// locks are held while coder connect is up. The keeper's says that there is one. The server's is also held by the
// server, so that it says whether the device is in use, even after the keeper was killed.
type locks struct{ keeper, server *os.File }

// lock keeps a second keeper away until close. It waits for the end of a server whose keeper was killed.
func lock(ctx context.Context, dir string) (l locks, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.keeper, err = os.OpenFile(keeperLock(dir), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return l, err
	}
	if l.server, err = os.OpenFile(serverLock(dir), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return l, err
	}
	if syscall.Flock(int(l.keeper.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return l, fault.New(fault.Conflict, "coder connect is already up on this machine").
			WithDetail("End it first: sudo coder connect down")
	}
	return l, flock(ctx, l.server, syscall.LOCK_EX)
}

// flock waits for a lock until ctx ends. The caller must close the file then.
func flock(ctx context.Context, file *os.File, how int) error {
	// A descriptor of its own, which the caller cannot close: it has the same lock.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate descriptor: %w", err)
	}
	locked := make(chan error, 1)
	go func() {
		err := error(syscall.EINTR)
		for errors.Is(err, syscall.EINTR) {
			err = syscall.Flock(fd, how)
		}
		_ = syscall.Close(fd)
		locked <- err
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// give lets the user's coder connect down wait for the locks. Other users, who could keep coder connect from starting
// with them, cannot open them.
func (l locks) give(u *user.User) error {
	credential, err := credentialOf(u)
	if err != nil {
		return err
	}
	uid, gid := int(credential.Uid), int(credential.Gid)
	return errors.Join(l.keeper.Chown(uid, gid), l.server.Chown(uid, gid))
}

func (l locks) close() {
	for _, file := range []*os.File{l.server, l.keeper} {
		if file != nil {
			file.Close()
		}
	}
}
