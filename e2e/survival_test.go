package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that is away for a minute does not cut a direct session, and takes its workspaces back when it returns.
func TestSessionOutlivesServer(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	await(t, "the path is direct", func() bool {
		out, _, err := d.try("ping", "-n", "1", "dev")
		return err == nil && strings.Contains(out, "p2p")
	})
	session := d.command(t.Context(), "ssh", "dev", "--", "while read line; do echo got $line; done")
	stdin, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	echo := func(n int) {
		t.Helper()
		fmt.Fprintf(stdin, "%d\n", n)
		if !lines.Scan() || lines.Text() != fmt.Sprintf("got %d", n) {
			t.Fatalf("line %d: got %q (%v)", n, lines.Text(), lines.Err())
		}
	}
	echo(0)
	// The first seconds may still be relayed; only a direct path outlives its server.
	time.Sleep(2 * time.Second)
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 60; n++ {
		echo(n)
		time.Sleep(time.Second)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	echo(61)
	stdin.Close()
	if err := session.Wait(); err != nil {
		t.Fatalf("the session ended with %v", err)
	}
	if out := d.coder("ssh", "dev", "--", "echo back"); out != "back\n" {
		t.Errorf("a new session after the restart: got %q", out)
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

// A server killed with -9 in the middle of a build loses nothing that was stored: the build ends failed with a reason, its
// finished resources are in the state, and the next build goes on from it.
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
	await(t, "the second resource is being made", func() bool {
		_, err := os.Stat(filepath.Join(d.dir, "in-flight"))
		return err == nil
	})
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	// The command waited for its server, and tells how the build ended.
	if err := create.Wait(); err == nil {
		t.Error("coder create: got success, want the failure of its build")
	}
	var w workspaceJSON
	await(t, "the build has ended", func() bool {
		w = d.workspace("dev")
		return w.LatestBuild.Job.Status == "failed" || w.LatestBuild.Job.Status == "succeeded"
	})
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
