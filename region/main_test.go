//go:build linux

package region_test

import (
	"fmt"
	"os"
	"testing"
)

// TestMain gives the shells of the tests' agents an empty home: a profile of the account that runs the tests may wait for locks that other
// shells hold.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(home)
	if err := os.Setenv("HOME", home); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
