//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// usable returns a fault if this account cannot write to a folder, or cannot create it. It changes nothing.
func usable(dir string) error {
	nearest, err := filepath.Abs(dir) // what exists of it
	if err != nil {
		return err
	}
	info, err := os.Stat(nearest)
	for errors.Is(err, fs.ErrNotExist) && nearest != filepath.Dir(nearest) {
		nearest = filepath.Dir(nearest)
		info, err = os.Stat(nearest)
	}
	if err == nil {
		if !info.IsDir() {
			err = &fs.PathError{Op: "write to", Path: nearest, Err: syscall.ENOTDIR}
		} else if failed := unix.Access(nearest, unix.W_OK|unix.X_OK); failed != nil {
			err = &fs.PathError{Op: "write to", Path: nearest, Err: failed}
		}
	}
	if err == nil {
		return nil
	}
	return fault.New(fault.Invalid, "The data folder %s cannot be used: %w", dir, err).
		WithDetail("Let the server's account write to it, or choose another with --global-config.")
}
