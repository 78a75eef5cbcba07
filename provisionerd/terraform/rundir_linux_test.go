package terraform_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestRunDirGoes uses a run folder whose name is too long, so that the executor derives another one, which disappears with the executor. If
// it holds the remains of a job it stays until they are recovered.
func TestRunDirGoes(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	opts := options(t)
	opts.RunDir = filepath.Join(opts.RunDir, strings.Repeat("long", 20))
	sum := sha256.Sum256([]byte(opts.RunDir))
	dir := "/run"
	if os.Geteuid() != 0 {
		dir = fmt.Sprintf("/var/tmp/cm-%d", os.Geteuid())
	}
	dir = filepath.Join(dir, "cm-"+hex.EncodeToString(sum[:5]))
	run := func(while func(*terraform.Executor)) {
		t.Helper()
		e, err := terraform.New(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		j := newTrial(t, files("resource \"terraform_data\" \"a\" {}\n"))
		ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
		while(e)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	gone := func() {
		t.Helper()
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want none", dir, err)
		}
	}
	run(func(*terraform.Executor) {
		if _, err := terraform.New(t.Context(), opts); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("a second executor on the same folder: %v", err)
		}
	})
	gone()
	id := uuid.New()
	state := filepath.Join(dir, "left", hex.EncodeToString(id[:])+"-1", "w", "terraform.tfstate")
	run(func(*terraform.Executor) {
		if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(state, []byte(`{"version":4,"serial":1,"lineage":"l","resources":[]}`), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Lstat(state); err != nil {
		t.Errorf("the remains went: %v", err)
	}
	run(func(e *terraform.Executor) {
		if left, err := e.Recover(t.Context(), id, 1, job.Known{}); err != nil || left.State == nil {
			t.Errorf("recover: %v, %v", left, err)
		}
	})
	gone()
}
