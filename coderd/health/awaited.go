package health

import (
	"context"
	"slices"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// addAwaited adds to a report the jobs for which stopping servers wait now. Who looks at a stop wants to see it go on,
// so these are read for each request. Without the database the report has none.
func (s *Service) addAwaited(ctx context.Context, report *sdk.HealthReport) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	rows, err := s.opts.DB.ListAwaitedJobs(ctx)
	if err != nil || len(rows) == 0 {
		return
	}
	report.Servers = slices.Clone(report.Servers) // the report is kept for other requests
	for _, row := range rows {
		i := slices.IndexFunc(report.Servers, func(server sdk.ServerHealth) bool {
			return row.ServerID != nil && server.ID == *row.ServerID
		})
		if i < 0 {
			continue
		}
		report.Servers[i].Stopping = true
		report.Servers[i].Awaits = append(report.Servers[i].Awaits, sdk.AwaitedJob{
			ID: row.ID, Type: sdk.JobType(row.Kind), InterruptedAt: *row.InterruptedAt,
			Provisioner: row.Provisioner, Initiator: row.Initiator,
			Owner: row.Owner, Workspace: row.Workspace, Template: row.Template,
			BuildNumber: int(row.BuildNumber), Transition: sdk.Transition(row.Transition),
		})
	}
}
