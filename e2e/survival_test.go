package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestSessionOutlivesServer checks that a server that is away for a minute does not cut a direct session, and its workspaces reconnect
// when it returns.
func TestSessionOutlivesServer(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	session := d.talk("dev")
	expiring := strings.TrimSpace(d.coder("tokens", "create", "--name", "short", "--lifetime", "1m"))
	if out, stderr, err := d.try("whoami", "--token", expiring); err != nil {
		t.Fatalf("whoami with a token of one minute: %v\n%s%s", err, out, stderr)
	}
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// This tests the minute without a server; the session is used all the time.
	lost := time.Now()
	n := 1
	for tick := time.Tick(time.Second); time.Since(lost) < time.Minute; n++ {
		session.echo(n)
		<-tick
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	session.echo(n)
	session.end()
	if out := d.coder("ssh", "dev", "--", "echo back"); out != "back\n" {
		t.Errorf("a new session after the restart: got %q", out)
	}
	t.Logf("a new session had ended %s after the server was back", time.Since(back).Round(10*time.Millisecond))
	// A token that expired meanwhile is not accepted.
	_, stderr, err := d.try("whoami", "--token", expiring)
	if err == nil || !strings.Contains(stderr, "expired") {
		t.Errorf("whoami with an expired token: got %v, %q; want a refusal that says so", err, stderr)
	}
}

const slowTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "terraform_data" "first" {
  provisioner "local-exec" {
    command = "echo first is made"
  }
}
resource "terraform_data" "second" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "touch %[1]s/in-flight; while [ ! -e %[1]s/go ]; do sleep 0.1; done"
  }
}
`

// TestServerKilledInMidBuild: a server killed with -9 in the middle of a build loses nothing that was stored: the build fails with a
// reason, its finished resources are in the state, and the next build continues from it.
func TestServerKilledInMidBuild(t *testing.T) {
	t.Parallel()
	d := startServer(t, "--provisioner-isolation", "none")
	template := filepath.Join(d.dir, "slow")
	if err := os.Mkdir(template, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "main.tf"), fmt.Appendf(nil, slowTemplate, d.dir), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "slow", "-d", template, "-y")
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	defer cancel()
	create := d.command(ctx, "create", "dev", "-t", "slow", "-y")
	if err := create.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the second resource is being made", exists(filepath.Join(d.dir, "in-flight")))
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the server answered again %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	// The command waited for its server, and reports how the build ended.
	if err := create.Wait(); err == nil {
		t.Error("coder create: got success, want the failure of its build")
	}
	testwait.Until(t, "the build has ended", d.jobIs("dev", "failed", "succeeded"))
	t.Logf("the build had ended %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	w := d.workspace("dev")
	if w.LatestBuild.Job.Status != "failed" || w.LatestBuild.Job.Error == "" {
		t.Errorf("the build: got status %q, error %q; want failed with a reason", w.LatestBuild.Job.Status, w.LatestBuild.Job.Error)
	}
	var state struct {
		Resources []struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"resources"`
	}
	d.get("/api/v2/workspacebuilds/"+w.LatestBuild.ID+"/state", &state)
	found := false
	for _, resource := range state.Resources {
		found = found || resource.Name == "first"
	}
	if !found {
		t.Errorf("the finished resource is not in the state: %+v", state)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("start", "dev", "-y")
	if got := d.workspace("dev").LatestBuild.Status; got != "running" {
		t.Errorf("after the next start: got %q, want running", got)
	}
}
