package terraform_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestLastWords kills the daemon while a program of the template has stopped Terraform. Either Terraform resumes within the time that it
// then has, and saves its state, or it is killed with all that the template started when the time is over.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		time             time.Duration // 0: the default
		unknown, tainted []string
		has              []string
	}{
		{name: "it saves", tainted: []string{"terraform_data.b"}, has: []string{"a", "b tainted", "main"}},
		{name: "it hangs", time: time.Second, unknown: []string{"terraform_data.b"}, has: []string{"a", "main"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "mark")
			opts := options(t)
			opts.LastWords = c.time
			stopped := 0
			id, known := doom(t, opts, chain(mark, "(while [ ! -e go ]; do sleep 0.05; done; kill -CONT $PPID) & kill -STOP $PPID"), func() {
				testwait.Until(t, "the template stops Terraform", func() error {
					shells := appear(t, "-e "+mark, 1)
					for _, shell := range shells {
						stopped = max(stopped, stoppedParent(t, shell))
					}
					if stopped == 0 {
						return fmt.Errorf("no parent of %v is stopped", shells)
					}
					return nil
				})
			})
			if c.time == 0 {
				if err := os.WriteFile(fmt.Sprintf("/proc/%d/cwd/go", stopped), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// Check this before a new daemon could end it.
			vanish(t, "-e "+mark)
			testwait.Until(t, "Terraform ends", func() error {
				if err := syscall.Kill(stopped, 0); err == nil {
					return fmt.Errorf("process %d runs", stopped)
				}
				return nil
			})
			e := newExecutor(t, func(o *terraform.Options) { *o = opts })
			if !strings.Contains(e.Isolation(), "bubblewrap") {
				t.Fatalf("isolation %q", e.Isolation())
			}
			left, err := e.Recover(t.Context(), id, 1, known)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{c.unknown, c.tainted, c.has}, [][]string{left.Unknown, left.Tainted, statuses(t, left.State)}); diff != "" {
				t.Errorf("unknown, tainted and state (-want +got):\n%s", diff)
			}
		})
	}
}

// stoppedParent returns the parent of a process if that parent is stopped, else 0.
func stoppedParent(t *testing.T, pid string) int {
	t.Helper()
	stat := func(pid string) []string {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	}
	parent := stat(pid)[1]
	if stat(parent)[0] != "T" {
		return 0
	}
	number, err := strconv.Atoi(parent)
	if err != nil {
		t.Fatal(err)
	}
	return number
}
