package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// pooled makes the starter "process" a template with prebuilt workspaces, whose agents have the variables that the
// other starters give theirs.
const pooled = `
data "coder_workspace_preset" "ready" {
  name       = "Ready"
  parameters = { shell = "/bin/sh" }
  prebuilds {
    instances = 2
  }
}
resource "coder_env" "author" {
  agent_id = coder_agent.main.id
  name     = "GIT_AUTHOR_NAME"
  value    = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
}
resource "coder_env" "email" {
  agent_id = coder_agent.main.id
  name     = "GIT_AUTHOR_EMAIL"
  value    = data.coder_workspace_owner.me.email
}
`

// containers makes the starter "docker" such a template.
const containers = `
data "coder_workspace_preset" "ready" {
  name       = "Ready"
  parameters = { memory = "1" }
  prebuilds {
    instances = 2
  }
}
`

// claims measures how long a user waits for a prebuilt workspace.
func (d *day) claims(ctx context.Context) error {
	return d.claimsOf(ctx, "process", pooled, max(3, d.runs/3))
}

// starter measures how long a user waits for a container of the starter "docker", without and with prebuilt workspaces.
func (d *day) starter(ctx context.Context) error {
	if err := d.startServer(ctx); err != nil {
		return err
	}
	if err := d.login(ctx); err != nil {
		return err
	}
	template := filepath.Join(d.dir, "docker")
	if _, err := d.do(ctx, "templates", "init", "--id", "docker", template); err != nil {
		return err
	}
	if _, err := d.do(ctx, "templates", "push", "docker", "-d", template, "-y"); err != nil {
		return err
	}
	n := 0
	if err := d.timed("create a container → prompt of ssh", "", d.terraformVersion(ctx), d.runs, func() error {
		n++
		return d.createAndEnter(ctx, fmt.Sprintf("p%d", n), "-t", "docker")
	}); err != nil {
		return err
	}
	for i := range n {
		if _, err := d.do(ctx, "delete", fmt.Sprintf("p%d", i+1), "-y"); err != nil {
			return err
		}
	}
	return d.claimsOf(ctx, "docker", containers, d.runs)
}

// claimsOf makes n claims of prebuilt workspaces of a starter. The pool is full at each request; its refill, and the
// claim's build, run beside it.
func (d *day) claimsOf(ctx context.Context, starter, pool string, n int) error {
	template := filepath.Join(d.dir, "pooled")
	if _, err := d.do(ctx, "templates", "init", "--id", starter, template); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(template, "pool.tf"), []byte(pool), 0o600); err != nil {
		return err
	}
	if _, err := d.do(ctx, "templates", "push", "pooled", "-d", template, "-y"); err != nil {
		return err
	}
	times := make([]float64, 0, n)
	for i := range n {
		if err := d.awaitPool(ctx); err != nil {
			return err
		}
		begin := time.Now()
		if err := d.createAndEnter(ctx, fmt.Sprintf("c%d", i), "-t", "pooled", "--preset", "Ready"); err != nil {
			return err
		}
		times = append(times, time.Since(begin).Seconds())
	}
	slices.Sort(times)
	d.add(row{
		Name: "create from the pool → prompt of ssh", Value: times[n/2], Unit: "s", Min: times[0], Max: times[n-1],
		Goal:      "≤ 0.5 s",
		Yardstick: d.terraformVersion(ctx),
	})
	_, err := d.do(ctx, "prebuilds", "pause")
	return err
}

// createAndEnter creates a workspace and checks in a session that it belongs to its user.
func (d *day) createAndEnter(ctx context.Context, name string, args ...string) error {
	if _, err := d.do(ctx, append([]string{"create", name, "-y"}, args...)...); err != nil {
		return err
	}
	out, err := d.do(ctx, "ssh", name, "--", "echo $GIT_AUTHOR_NAME $GIT_AUTHOR_EMAIL")
	if err != nil {
		return err
	}
	if out != "ada ada@example.com\n" {
		return fmt.Errorf("the workspace %s belongs to %q", name, out)
	}
	return nil
}

// awaitPool waits until two prebuilt workspaces are ready for a user.
func (d *day) awaitPool(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		out, err := d.do(ctx, "list", "-o", "json", "--search", "owner:prebuilds")
		if err != nil {
			return err
		}
		var rows []sdk.Workspace
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return fmt.Errorf("read list of workspaces: %w", err)
		}
		ready := 0
		for _, w := range rows {
			agents := w.LatestBuild.Agents()
			if w.LatestBuild.Status == sdk.WorkspaceRunning && len(agents) == 1 &&
				agents[0].LifecycleState == sdk.LifecycleReady {
				ready++
			}
		}
		if ready >= 2 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the pool is not full")
		case <-time.After(200 * time.Millisecond):
		}
	}
}
