package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestUses: sessions, bytes and latencies are those of connected agents; one that has reported nothing yet adds nothing.
func TestUses(t *testing.T) {
	t.Parallel()
	busy, idle, quiet, gone := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	c := &Collector{uses: func(agent uuid.UUID, _ *uuid.UUID) (*sdk.AgentConnections, string, time.Duration) {
		switch agent {
		case busy:
			return &sdk.AgentConnections{SSH: 1, VSCode: 2, JetBrains: 3, ReconnectingPTY: 4, RxBytes: 5e9, TxBytes: 1}, "eu", 30 * time.Millisecond
		case idle:
			return &sdk.AgentConnections{RxBytes: 1, TxBytes: 2}, "eu", 1500 * time.Microsecond
		case quiet:
			return nil, "", 0
		}
		t.Error("asked about an agent that is not connected")
		return nil, "", 0
	}}
	var agents []dbsqlc.ListAgentsForMetricsRow
	for _, id := range []uuid.UUID{busy, idle, quiet} {
		agents = append(agents, dbsqlc.ListAgentsForMetricsRow{ID: id, Status: string(sdk.AgentConnected)})
	}
	agents = append(agents, dbsqlc.ListAgentsForMetricsRow{ID: gone, Status: string(sdk.AgentDisconnected)})
	var got sdk.DeploymentStats
	c.countUses(agents, &got)
	want := sdk.DeploymentStats{
		Workspaces:   sdk.WorkspaceDeploymentStats{RxBytes: 5e9 + 1, TxBytes: 3, ConnectionLatencyMS: sdk.ConnectionLatency{P50: 1.5, P95: 30}},
		SessionCount: sdk.SessionCount{SSH: 1, VSCode: 2, JetBrains: 3, ReconnectingPTY: 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
