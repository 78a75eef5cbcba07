package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// Stopping tells those who wait for a job of this server's own provisioners that the server is stopping, and when it
// interrupts the job, and those whose job only such provisioners may take what it waits for.
func (s *Service) Stopping(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := s.opts.DB.MarkJobsStopping(ctx, dbsqlc.MarkJobsStoppingParams{At: deadline, ServerID: s.id}); err != nil {
		return fmt.Errorf("mark jobs of a stopping server: %w", err)
	}
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		rows, err := q.LockPendingJobs(ctx)
		if err != nil {
			return fmt.Errorf("lock waiting jobs: %w", err)
		}
		daemons, err := s.daemons(ctx, q, rows)
		if err != nil {
			return err
		}
		held := rows[:0]
		for _, row := range rows {
			tags, err := decodeTags(row.Tags)
			if err != nil {
				return err
			}
			if whyLeaving(matching(tags, daemons[row.OrganizationID].online)) != "" {
				held = append(held, row)
			}
		}
		return s.announcePlaces(ctx, q, held)
	})
}

// stoppingServer says what happens to a job whose server is stopping.
func stoppingServer(worker string, deadline, now time.Time) (reason, remedy string) {
	at := deadline.UTC().Format("15:04:05 UTC")
	left := deadline.Sub(now).Round(time.Second)
	if left <= 0 {
		return fmt.Sprintf("The server of the provisioner %s is stopping and has interrupted the job at %s.", worker, at), "What the job has made is kept. Start it again on another server, or once the server is back."
	}
	return fmt.Sprintf("The server of the provisioner %s is stopping. It waits for this job until %s, %s from now, and then interrupts it.", worker, at, left),
		"What the job has made is kept if it is interrupted. Jobs that start now run on other servers, or wait until the server is back."
}
