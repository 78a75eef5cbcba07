package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// shortVolatileDir returns a folder in memory whose path is short enough for unix sockets.
func shortVolatileDir(root bool) string {
	if root {
		if info, err := os.Stat("/run"); err == nil && info.IsDir() {
			return "/run"
		}
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && len(dir) < 30 {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return filepath.Join("/var/tmp", "cm-"+strconv.Itoa(os.Geteuid()))
}

func ownedByUs(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	stat, ok := statusOf(info)
	if !ok || !info.IsDir() || stat.uid != os.Geteuid() {
		return fault.New(fault.Unavailable, "the folder %s belongs to another user: choose another", dir)
	}
	return nil
}

// lockFile holds a lock until the file is closed or this process ends.
func lockFile(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run folder: %w", err)
	}
	if err := tryLock(file); err != nil {
		held := errors.Is(err, syscall.EWOULDBLOCK) // a disk may also be unable to lock
		if err = errors.Join(err, file.Close()); !held {
			return nil, fmt.Errorf("lock run folder: %w", err)
		}
		return nil, fault.New(fault.Conflict, "another server or provisioner uses the folder %s: %w",
			filepath.Dir(name), err).
			WithDetail("Stop it, or give this one its own configuration folder with --global-config.")
	}
	return file, nil
}

// existing returns the deepest existing folder on the path to name.
func existing(name string) string {
	for {
		if _, err := os.Stat(name); err == nil || name == filepath.Dir(name) {
			return name
		}
		name = filepath.Dir(name)
	}
}

// reachable reports whether an account that owns nothing can read dir, or run it if it is a file. Otherwise it returns
// the path that is in the way.
func reachable(name string) (obstacle string, ok bool) {
	resolved, err := filepath.EvalSymlinks(name)
	if err != nil {
		return name, false
	}
	for dir := resolved; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return dir, false
		}
		if dir == filepath.Dir(dir) || !strings.HasPrefix(dir, "/") {
			return "", true
		}
	}
}

// below reports whether name is dir or lies in it, with existing links resolved.
func below(name, dir string) bool {
	if resolved, err := filepath.EvalSymlinks(existing(dir)); err == nil {
		dir = filepath.Join(resolved, strings.TrimPrefix(dir, existing(dir)))
	}
	if resolved, err := filepath.EvalSymlinks(existing(name)); err == nil {
		name = filepath.Join(resolved, strings.TrimPrefix(name, existing(name)))
	}
	inside, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(inside)
}

// temporaryDirs are private to a sandbox with namespaces; otherwise they are the host's.
var temporaryDirs = []string{"/tmp", "/var/tmp", "/dev/shm"}

func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fault.New(fault.Unavailable, "the folder %s cannot be used: %w", dir, err)
		}
	}
	return nil
}

// Links returns how many names a file has, and whether that is known.
func Links(info fs.FileInfo) (links uint64, ok bool) {
	stat, ok := statusOf(info)
	return stat.links, ok
}
