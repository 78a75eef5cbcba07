//go:build unix

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Guard returns an error if another account could have made path, or can replace it: because it lies below a folder in
// which everyone may create files, such as /tmp, and is not this account's. What does not exist is no problem, and
// neither are other accounts' folders elsewhere, which the caller chose by giving the path. path must be absolute.
func Guard(path string) error {
	if err := guardNames(path); err != nil {
		return err
	}
	to, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return guardNames(to)
}

// guardNames checks path and the folders above it under the names that they have in path.
func guardNames(path string) error {
	at, open := "/", false // open: everyone may write to the folder at
	for _, name := range strings.Split(strings.Trim(filepath.Clean(path), "/"), "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if open && !IsOwn(info) {
			return fmt.Errorf("%s belongs to another account", at)
		}
		if open, err = OpenToAll(at); err != nil {
			return err
		}
		if open && info.Mode()&fs.ModeSymlink == 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("everyone may replace files in %s: set its sticky bit (chmod +t)", at)
		}
	}
	return nil
}

// OpenToAll reports whether path is a folder in which every account may create files. A missing one is not.
func OpenToAll(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir() && info.Mode().Perm()&0o002 != 0, err
}

// IsOwn reports whether a file belongs to this account.
func IsOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
