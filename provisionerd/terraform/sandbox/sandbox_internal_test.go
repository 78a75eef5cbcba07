package sandbox

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestWriteProgram checks that a program runs at once, even while other goroutines start processes.
func TestWriteProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			name := filepath.Join(dir, string(rune('a'+n)))
			for range 100 {
				if err := writeProgram(name, []byte("#!/bin/true\n")); err != nil {
					t.Error(err)
					return
				}
				if err := exec.Command(name).Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
