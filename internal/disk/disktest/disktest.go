//go:build linux

// Package disktest gives tests small disks of their own.
package disktest

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// Small mounts a tmpfs with options such as "size=2m,nr_inodes=100" in a new folder, until the test ends. It skips the
// test where it may not mount.
func Small(t testing.TB, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir, err := os.MkdirTemp("/run", "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := syscall.Mount("cmtest", dir, "tmpfs", 0, options+",mode=755"); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this machine does not let root mount")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Fill writes a file until its disk is full.
func Fill(t testing.TB, name string) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 20; size > 0; {
		if _, err := file.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// FillFiles makes empty files in a folder until its disk has room for no more.
func FillFiles(t testing.TB, dir string) {
	t.Helper()
	for {
		file, err := os.CreateTemp(dir, "ballast")
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
}
