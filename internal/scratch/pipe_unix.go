//go:build unix

package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// private reports whether info describes a folder of the account uid that others cannot enter.
func private(info fs.FileInfo, uid int) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(stat.Uid) == uid && info.Mode().Perm() == 0o700
}

// makePipe creates the folder's pipe and opens it. It returns nil if the file system does not support pipes.
func makePipe(folder string) (*os.File, error) {
	path := filepath.Join(folder, NewPipeName)
	err := unix.Mkfifo(path, 0o600)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path, filepath.Join(folder, PipeName)); err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	return pipe, nil
}

// abandoned reports whether the folder has a pipe without a reader.
func abandoned(folder *os.Root) (bool, error) {
	info, err := folder.Lstat(PipeName)
	if err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		return false, err
	}
	pipe, err := folder.OpenFile(PipeName, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, pipe.Close()
}

// lock locks the folder against other sweeps. It returns nil if another sweep holds the lock.
func lock(folder *os.Root) (unlock func(), err error) {
	dir, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return func() { dir.Close() }, nil
	}
	dir.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock folder: %w", err)
}

// removeEmpty removes a folder if it is empty. Folders that this package creates are never empty under their final
// name.
func removeEmpty(path string) { _ = unix.Rmdir(path) }

// Adopt takes over the folder at path from the start script, which has executed this program and left the pipe open as
// descriptor fd. Scripts of earlier versions created no pipe.
func Adopt(path string, fd int) (*Folder, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("adopt folder: %w", err)
	}
	if !private(info, os.Geteuid()) {
		return nil, fmt.Errorf("adopt folder: %s is not a folder that only this account can enter", path)
	}
	f := &Folder{path: path}
	named, err := os.Lstat(filepath.Join(path, PipeName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.pipe, err = makePipe(path)
	case err == nil && isFile(fd, named):
		unix.CloseOnExec(fd)
		f.pipe = os.NewFile(uintptr(fd), PipeName)
	case err == nil: // the shell has closed it, as some do before they exec another program
		f.pipe, err = os.OpenFile(filepath.Join(path, PipeName), os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("adopt folder: %w", err)
	}
	return f, nil
}

// isFile reports whether a descriptor refers to a file.
func isFile(fd int, info fs.FileInfo) bool {
	var have unix.Stat_t
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && unix.Fstat(fd, &have) == nil && have.Dev == stat.Dev && have.Ino == stat.Ino
}
