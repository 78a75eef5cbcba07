package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// noisyTemplate prints, on a signal, more than a full disk can store.
const noisyTemplate = `
resource "terraform_data" "noise" {
  provisioner "local-exec" {
    command = "touch %[1]s/in-flight; while [ ! -e %[1]s/go ]; do sleep 0.1; done; head -c 4000000 /dev/urandom | base64 -w 120; echo all is said"
  }
}
`

// spoken is a running command with its output so far.
type spoken struct {
	t     *testing.T
	file  *os.File
	ended chan error
}

func (d *deployment) speak(_ context.Context, name string, cmd *exec.Cmd) *spoken {
	d.t.Helper()
	file, err := os.Create(filepath.Join(d.dir, name))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { file.Close() })
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	s := &spoken{t: d.t, file: file, ended: make(chan error, 1)}
	go func() { s.ended <- cmd.Wait() }()
	return s
}

func (s *spoken) text() string {
	s.t.Helper()
	text, err := os.ReadFile(s.file.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// TestFullDiskIsExplained: while the database's disk is full, users whose builds wait for it see the reason, both for running builds and
// for builds that cannot begin. The deployment's health also reports it. Everything continues when there is space.
func TestFullDiskIsExplained(t *testing.T) {
	t.Parallel()
	d, config := onSmallDisk(t, "--provisioner-isolation", "none")
	d.begin()
	template := filepath.Join(d.dir, "noisy")
	if err := os.Mkdir(template, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "main.tf"), fmt.Appendf(nil, noisyTemplate, d.dir), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "noisy", "-d", template, "-y")
	ctx, cancel := context.WithTimeout(t.Context(), 4*settle)
	defer cancel()
	first := d.speak(ctx, "first.log", d.command(ctx, "create", "first", "-t", "noisy", "-y"))
	defer func() {
		if t.Failed() {
			t.Logf("create first printed:\n%s\nserver's log:\n%s", first.text(), d.logText())
		}
	}()
	testwait.Until(t, "the build runs", exists(filepath.Join(d.dir, "in-flight")))
	ballast := filepath.Join(config, "ballast")
	fill(t, ballast)
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the owner of the running build sees why it stalls", contains(first.text, "The database's disk is full."))
	// PostgreSQL may refuse new connections now, too (see diskFull in coderd/database): then the answer is the reason itself. It may also have
	// ended because its log did not fit, and is back soon.
	testwait.Until(t, "the health report names the full disk", func() error {
		status, text := d.status("/api/v2/debug/health?force=true")
		named := status == http.StatusOK && strings.Contains(text, "database_cannot_write") ||
			status == http.StatusServiceUnavailable && strings.Contains(text, "The database's disk is full.")
		return testwait.Unless(named, "status %d: %s", status, text)
	})

	// It is random whether the small row of a new build still fits.
	second := d.speak(ctx, "second.log", d.command(ctx, "create", "second", "-t", "noisy", "-y"))
	testwait.Until(t, "the owner of the waiting build sees why it waits", contains(second.text, "The database's disk is full."))
	select {
	case err := <-first.ended:
		t.Errorf("create first has ended while the disk is full: %v", err)
	default:
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := <-first.ended; err != nil {
		t.Errorf("create first: %v", err)
	}
	if !strings.Contains(first.text(), "all is said") {
		t.Error("the end of the build's log was lost")
	}
	secondErr := <-second.ended
	if secondErr != nil && !strings.Contains(second.text(), "error: ") {
		t.Errorf("create second: %v, %q", secondErr, second.text())
	}
	names := strings.Fields(d.coder("list", "-c", "workspace"))
	if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "first") }) {
		t.Errorf("list: %q, want first", names)
	}
	if got := d.workspace("first").LatestBuild.Status; got != "running" {
		t.Errorf("first is %s", got)
	}
}
