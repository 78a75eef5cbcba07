//go:build windows

// Package winetest lets tests for Windows run in Wine, too (make test-windows), where some things are missing or
// different.
package winetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/windows"
)

// In reports whether this is Wine.
func In() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

// Shell returns cmd.exe, in Wine by way of a program of scripts/wine: Wine 8 does not give programs the streams of
// their pseudo console.
func Shell() string {
	if In() {
		return `C:\console\cmd.exe`
	}
	return os.Getenv("ComSpec")
}

// TempDir is like testing.T.TempDir, whose folder cannot be removed in Wine 8: it lacks the call by which os.RemoveAll
// removes files.
func TempDir(t *testing.T) string {
	t.Helper()
	if !In() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("", "winetest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var all []string
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			all = append(all, path)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		for _, path := range slices.Backward(all) {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
	})
	return dir
}
