package target

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// ReportUsage regularly reports to the server that the workspace is in use, until ctx ends.
func (t *Target) ReportUsage(ctx context.Context, appName string) {
	timer := time.NewTimer(usageFirst)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// The report keeps the server from stopping an idle workspace; one lost report of many does no harm.
		_ = t.Client.WorkspaceUsage(ctx, t.Workspace.ID, sdk.UsageRequest{AgentID: t.Agent.ID, AppName: appName})
		timer.Reset(usageEvery)
	}
}

const (
	usageFirst = 5 * time.Second
	usageEvery = time.Minute
)
