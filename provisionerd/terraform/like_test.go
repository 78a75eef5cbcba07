package terraform_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestLike checks that the executors of a process start Terraform once to find out about it, and not once each.
func TestLike(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("terraform")
	if err != nil {
		if program, err = exec.LookPath("tofu"); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	runs, counting := filepath.Join(dir, "runs"), filepath.Join(dir, filepath.Base(program))
	if err := os.WriteFile(counting, fmt.Appendf(nil, "#!/bin/sh\necho >>%s\nexec %s \"$@\"\n", runs, program), 0o755); err != nil {
		t.Fatal(err)
	}
	var first *terraform.Executor
	for i, want := range []int{1, 1, 2} {
		e := newExecutor(t, func(o *terraform.Options) {
			o.Binary, o.Isolation, o.Slots = counting, "none", -1
			if i == 1 {
				o.Like = first
			}
		})
		if i == 0 {
			first = e
		}
		text, err := os.ReadFile(runs)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "\n"); got != want || e.Name() != first.Name() {
			t.Errorf("executor %d, of %q: Terraform was started %d times, want %d", i, e.Name(), got, want)
		}
	}
}
