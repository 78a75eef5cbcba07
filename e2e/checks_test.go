package e2e_test

import (
	"os"
	"slices"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// The checks below are for testwait.Until. Each returns what it saw instead of what the test waits for.

// exists checks that there is a file.
func exists(name string) func() error {
	return func() error {
		_, err := os.Stat(name)
		return err
	}
}

// contains checks that a text that grows, such as a log, contains another.
func contains(text func() string, want string) func() error {
	return func() error { return testwait.Contains(text(), want) }
}

// answers checks that a path of the API answers the first user with a status.
func (d *deployment) answers(path string, want int) func() error {
	return func() error {
		got, text := d.status(path)
		return testwait.Unless(got == want, "status %d, want %d: %s", got, want, text)
	}
}

// jobIs checks that the job of a workspace's latest build has one of the statuses.
func (d *deployment) jobIs(workspace string, want ...string) func() error {
	return func() error {
		got := d.workspace(workspace).LatestBuild.Job
		return testwait.Unless(slices.Contains(want, got.Status), "%+v, want %q", got, want)
	}
}

// agentIs checks the status of the only agent of a workspace.
func (d *deployment) agentIs(workspace, want string) func() error {
	return func() error {
		_, got := d.workspace(workspace).firstAgent()
		return testwait.Unless(got == want, "the agent is %q, want %q: %+v", got, want, d.workspace(workspace).LatestBuild)
	}
}

// runsAgents checks how many agents the deployment's processes are.
func (d *deployment) runsAgents(n int) func() error {
	return func() error { return testwait.Len(d.agents(), n) }
}

// metricIs checks the value of a series that an address serves.
func metricIs(t *testing.T, address, series, want string) func() error {
	return func() error {
		got := scrape(t, address, series)
		return testwait.Unless(got == want, "%s is %q, want %q", series, got, want)
	}
}
