package agents_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestStatus checks the two functions of the database that say what an agent's status and its problem are.
func TestStatus(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	ago := func(seconds float64) *float64 { return &seconds }
	build := func(n int32) *int32 { return &n }
	const none = ""
	for _, tt := range []struct {
		name              string
		created           float64 // seconds ago, as the next three
		first, last, gone *float64
		timeout           int32 // in seconds
		lifecycle         sdk.AgentLifecycle
		startup           string
		awaits            *int32
		want              sdk.AgentStatus
		problem           string
	}{
		{name: "just made", created: 1, timeout: 120, want: sdk.AgentConnecting, problem: none},
		{name: "at the limit", created: 120, timeout: 120, want: sdk.AgentConnecting, problem: none},
		{name: "beyond the limit", created: 121, timeout: 120, want: sdk.AgentTimeout, problem: "timeout"},
		{name: "no limit", created: 86400, want: sdk.AgentConnecting, problem: none},
		{name: "its start script reports", created: 1, timeout: 120, startup: "install curl", want: sdk.AgentConnecting, problem: "startup"},
		{name: "beyond the limit, and reported", created: 121, timeout: 120, startup: "install curl", want: sdk.AgentTimeout, problem: "startup"},
		{name: "connected", created: 60, timeout: 120, first: ago(30), last: ago(30), want: sdk.AgentConnected, problem: none},
		{name: "connected late", created: 3600, timeout: 120, first: ago(1), last: ago(1), want: sdk.AgentConnected, problem: none},
		{name: "connected after a report", created: 60, first: ago(30), last: ago(30), startup: "install curl", want: sdk.AgentConnected, problem: none},
		{name: "gone", created: 3600, timeout: 120, first: ago(60), last: ago(60), gone: ago(1), want: sdk.AgentDisconnected, problem: "disconnected"},
		{name: "back again", created: 3600, timeout: 120, first: ago(3600), last: ago(1), want: sdk.AgentConnected, problem: none},
		{name: "not yet its new owner's", created: 60, timeout: 30, first: ago(30), last: ago(30), awaits: build(2), want: sdk.AgentConnecting, problem: none},
		{name: "gone before it was its new owner's", created: 60, first: ago(30), last: ago(30), gone: ago(1), awaits: build(2),
			want: sdk.AgentDisconnected, problem: "disconnected"},
		{name: "off", created: 60, first: ago(30), last: ago(30), gone: ago(1), lifecycle: sdk.LifecycleOff, want: sdk.AgentDisconnected, problem: "off"},
		{name: "off, and never connected", created: 60, timeout: 30, lifecycle: sdk.LifecycleOff, want: sdk.AgentTimeout, problem: "off"},
		{name: "a script failed", created: 60, first: ago(30), last: ago(30), lifecycle: sdk.LifecycleStartError, want: sdk.AgentConnected, problem: "scripts"},
		{name: "a script takes long", created: 60, first: ago(30), last: ago(30), lifecycle: sdk.LifecycleStartTimeout, want: sdk.AgentConnected, problem: "scripts"},
		{name: "a script failed, and gone", created: 60, first: ago(30), last: ago(30), gone: ago(1), lifecycle: sdk.LifecycleStartError,
			want: sdk.AgentDisconnected, problem: "disconnected"},
		{name: "shutting down", created: 60, first: ago(30), last: ago(30), lifecycle: sdk.LifecycleShuttingDown, want: sdk.AgentConnected, problem: "shutdown"},
		{name: "shutdown failed", created: 60, first: ago(30), last: ago(30), lifecycle: sdk.LifecycleShutdownError, want: sdk.AgentConnected, problem: "shutdown"},
		{name: "off, and still connected", created: 60, first: ago(30), last: ago(30), lifecycle: sdk.LifecycleOff, want: sdk.AgentConnected, problem: "shutdown"},
	} {
		if tt.lifecycle == "" {
			tt.lifecycle = sdk.LifecycleReady
		}
		var status sdk.AgentStatus
		var problem string
		// One statement, so that now() is the same in what it stores and in what it returns.
		if err := w.DB.Pool.QueryRow(t.Context(), `UPDATE workspace_agents a SET created_at = now() - make_interval(secs => $2),
			first_connected_at = now() - make_interval(secs => $3), last_connected_at = now() - make_interval(secs => $4),
			disconnected_at = now() - make_interval(secs => $5), connection_timeout_seconds = $6, lifecycle_state = $7, startup_problem = $8, awaited_build = $9
			WHERE id = $1 RETURNING agent_status(a), agent_problem(a)`,
			id, tt.created, tt.first, tt.last, tt.gone, tt.timeout, string(tt.lifecycle), tt.startup, tt.awaits).Scan(&status, &problem); err != nil {
			t.Fatal(err)
		}
		if status != tt.want || problem != tt.problem {
			t.Errorf("%s: %s with the problem %q, want %s and %q", tt.name, status, problem, tt.want, tt.problem)
		}
	}
}

// TestStatusIsInlined checks that PostgreSQL replaces the functions by what they compute: a list calls them for every agent that it looks at.
func TestStatusIsInlined(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	rows, err := w.DB.Pool.Query(t.Context(), `EXPLAIN (VERBOSE) SELECT agent_status(a), agent_problem(a) FROM workspace_agents a WHERE id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if !strings.Contains(plan, "CASE WHEN") || strings.Contains(plan, "agent_status(") || strings.Contains(plan, "agent_problem(") {
		t.Errorf("the plan calls a function:\n%s", plan)
	}
}
