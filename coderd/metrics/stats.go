package metrics

import (
	"context"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Routes registers the counts for clients that do not scrape metrics.
func (c *Collector) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/deployment/stats", rbac.Needs(rbac.Read, rbac.Deployment), c.getStats)
}

func (c *Collector) getStats(w http.ResponseWriter, r *http.Request) error {
	stats, err := c.stats(r.Context())
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, stats)
}

// stats counts workspaces, or repeats the counts of a few seconds ago.
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
	now := time.Now()
	c.counted = sdk.DeploymentStats{CollectedAt: now, NextUpdateAt: now.Add(freshFor), Workspaces: countWorkspaces(builds)}
	return c.counted, nil
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
