package metrics

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Routes registers the counts for clients that do not scrape metrics.
func (c *Collector) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/deployment/stats", rbac.Needs(rbac.Read, rbac.Deployment), c.getStats)
	mux.Handle("GET /api/v2/deployment/overview", rbac.Needs(rbac.Read, rbac.Deployment), c.getOverview)
}

func (c *Collector) getStats(w http.ResponseWriter, r *http.Request) error {
	stats, err := c.stats(r.Context())
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, stats)
}

// stats counts workspaces and connections, or repeats the counts of a few seconds ago.
func (c *Collector) stats(ctx context.Context) (sdk.DeploymentStats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.counted.NextUpdateAt) {
		return c.counted, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	builds, err := c.db.CountLatestBuilds(ctx)
	if err != nil {
		return sdk.DeploymentStats{}, err
	}
	agents, err := c.db.ListAgentsForMetrics(ctx)
	if err != nil {
		return sdk.DeploymentStats{}, err
	}
	now := time.Now()
	counted := sdk.DeploymentStats{
		CollectedAt: now, NextUpdateAt: now.Add(freshFor), Workspaces: countWorkspaces(builds),
	}
	c.countUses(agents, &counted)
	c.counted = counted
	return c.counted, nil
}

// countUses adds what connected agents have reported.
func (c *Collector) countUses(agents []dbsqlc.ListAgentsForMetricsRow, n *sdk.DeploymentStats) {
	var latencies []time.Duration
	for _, a := range agents {
		if sdk.AgentStatus(a.Status) != sdk.AgentConnected {
			continue
		}
		sessions, _, latency := c.uses(a.ID, a.ServerID)
		if latency > 0 {
			latencies = append(latencies, latency)
		}
		if sessions == nil {
			continue
		}
		n.SessionCount.VSCode += int64(sessions.VSCode)
		n.SessionCount.SSH += int64(sessions.SSH)
		n.SessionCount.JetBrains += int64(sessions.JetBrains)
		n.SessionCount.ReconnectingPTY += int64(sessions.ReconnectingPTY)
		n.Workspaces.RxBytes += int64(sessions.RxBytes)
		n.Workspaces.TxBytes += int64(sessions.TxBytes)
	}
	if len(latencies) == 0 {
		return
	}
	slices.Sort(latencies)
	at := func(percent int) float64 { // by the nearest rank
		return float64(latencies[(len(latencies)*percent+99)/100-1].Microseconds()) / 1000
	}
	n.Workspaces.ConnectionLatencyMS = sdk.ConnectionLatency{P50: at(50), P95: at(95)}
}

func countWorkspaces(builds []dbsqlc.CountLatestBuildsRow) (n sdk.WorkspaceDeploymentStats) {
	for _, b := range builds {
		switch sdk.JobStatus(b.Status) {
		case sdk.JobPending:
			n.Pending += b.Workspaces
		case sdk.JobRunning, sdk.JobCanceling:
			n.Building += b.Workspaces
		case sdk.JobFailed, sdk.JobCanceled:
			n.Failed += b.Workspaces
		case sdk.JobSucceeded:
			if sdk.Transition(b.Transition) == sdk.TransitionStart {
				n.Running += b.Workspaces
			} else {
				n.Stopped += b.Workspaces
			}
		}
	}
	return n
}
