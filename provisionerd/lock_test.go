package provisionerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd"
)

func TestFolderHasOneOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "rack-2")
	first, err := provisionerd.LockFolder(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, successor := range []bool{false, true} {
		if _, err := provisionerd.LockFolder(t.Context(), dir, successor); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "with this name") {
			t.Errorf("a second lock (successor: %v): got %v, want a conflict", successor, err)
		}
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := provisionerd.LockFolder(t.Context(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestSuccessorGivesWay checks that a daemon asks a successor to end, and waits for it.
func TestSuccessorGivesWay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner := filepath.Join(dir, "owner")
	// This process holds the lock, claims to be a successor, and ends when asked to.
	successor := exec.CommandContext(t.Context(), "flock", "--no-fork", owner, "sh", "-c", `printf 'heir %d' $$ >`+owner+`; echo ready; read line`)
	stdin, err := successor.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := successor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := successor.Start(); err != nil {
		t.Fatal(err)
	}
	var word string
	if _, err := fmt.Fscan(stdout, &word); err != nil || word != "ready" {
		t.Fatalf("the successor said %q: %v", word, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- successor.Wait() }()
	lock, err := provisionerd.LockFolder(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	<-ended
	if status, ok := successor.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("the successor ended with %v, want SIGTERM", successor.ProcessState)
	}
	if text, err := os.ReadFile(owner); err != nil || len(text) != 0 {
		t.Errorf("the new owner's mark: %q, %v", text, err)
	}
}

func TestUndelivered(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	if found, err := provisionerd.Undelivered(dir); found || err != nil {
		t.Errorf("no folder: %v, %v", found, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"lock": false, strings.Repeat("ab", 16) + "-1.revoked": false, strings.Repeat("ab", 16) + "-1.journal": true} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := provisionerd.Undelivered(dir); found != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", name, found, err, want)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
