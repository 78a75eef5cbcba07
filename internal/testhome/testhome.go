// Package testhome gives the programs that tests start an empty home. A profile of the account that runs the tests may print, change PATH, or wait
// for a minute for the lock of another shell.
package testhome

import (
	"fmt"
	"os"
	"testing"
)

// M runs the tests of a package with a new empty folder as $HOME, and removes it after them. Caches stay where they are: $XDG_CACHE_HOME. A package's TestMain calls os.Exit(testhome.M{M:
// m}.Run()), or goleak.VerifyTestMain(testhome.M{M: m}).
type M struct{ *testing.M }

// Run returns the exit code, as testing.M's does.
func (m M) Run() int {
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(home)
	if cache, err := os.UserCacheDir(); err == nil {
		if err := os.Setenv("XDG_CACHE_HOME", cache); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := os.Setenv("HOME", home); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.M.Run()
}
