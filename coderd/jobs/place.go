package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// placesEvery bounds how often a server looks for waiting jobs that have moved up.
const placesEvery = 2 * time.Second

// explainWaiting tells jobs that have waited for a moment, in their logs, what they wait for.
func (s *Service) explainWaiting() error {
	ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
	defer cancel()
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		rows, err := q.LockSilentJobs(ctx, explainAfter.Seconds())
		if err != nil {
			return err
		}
		return s.announcePlaces(ctx, q, rows)
	})
}

// explainMoves tells jobs their new place in the queue once it is at most half of the one that their log names: a job
// gets few lines, however long the queue.
func (s *Service) explainMoves() error {
	ctx, cancel := context.WithTimeout(s.ctx, queryTimeout)
	defer cancel()
	announced, err := s.opts.DB.ListAnnouncedPlaces(ctx)
	if err != nil || len(announced) == 0 {
		return err
	}
	ids, was := make([]uuid.UUID, len(announced)), map[uuid.UUID]int32{}
	for i, row := range announced {
		ids[i], was[row.ID] = row.ID, row.ToldPlace
	}
	positions, err := s.opts.DB.ListPendingPositions(ctx, ids)
	if err != nil {
		return fmt.Errorf("list queue positions: %w", err)
	}
	moved := []uuid.UUID{}
	for _, p := range positions {
		if 2*p.Position <= int64(was[p.ID]) {
			moved = append(moved, p.ID)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		rows, err := q.LockWaitingJobs(ctx, moved)
		if err != nil {
			return err
		}
		unsaid := rows[:0]
		for _, row := range rows {
			if row.ToldPlace == was[row.ID] { // no other server has announced it
				unsaid = append(unsaid, row)
			}
		}
		return s.announcePlaces(ctx, q, unsaid)
	})
}

// announcePlaces writes into the logs of locked jobs what they wait for.
func (s *Service) announcePlaces(ctx context.Context, q *dbsqlc.Queries, rows []dbsqlc.ProvisionerJob) error {
	if len(rows) == 0 {
		return nil
	}
	daemons, err := s.daemons(ctx, q, rows)
	if err != nil {
		return err
	}
	shown, err := s.describe(ctx, q, rows, daemons)
	if err != nil {
		return err
	}
	queues, err := paces(ctx, q, shown, daemons)
	if err != nil {
		return err
	}
	for _, row := range rows {
		job := shown[row.ID]
		text, place := cmp.Or(job.WaitingReason, "Waiting for a provisioner."), 0
		if row.ToldPlace > 0 {
			place = job.QueuePosition // its log has named one, so it hears of the next ones, too
		}
		if pace := queues[poolOf(job)]; pace.daemons > 0 && job.QueuePosition > 0 {
			text, place = pace.line(job.QueuePosition), job.QueuePosition
		}
		if err := s.say(ctx, q, row, provisionerpb.LogLevel_LOG_LEVEL_INFO, "Queued", text); err != nil {
			return err
		}
		if err := q.SetAnnouncedPlace(ctx, dbsqlc.SetAnnouncedPlaceParams{
			ID: row.ID, ToldPlace: int32(place),
		}); err != nil { //nolint:gosec // queues are shorter
			return fmt.Errorf("note place in the queue: %w", err)
		}
	}
	// Servers that looked for a job meanwhile have skipped these, because they were locked.
	return q.Notify(ctx, dbsqlc.NotifyParams{Channel: channelQueue, Payload: ""})
}

// pool identifies the jobs of an organization that the same daemons may take.
type pool struct {
	org  uuid.UUID
	tags string
}

func poolOf(job sdk.ProvisionerJob) pool {
	return pool{job.OrganizationID, fmt.Sprint(map[string]string(job.Tags))} // in the order of the keys
}

// pace is how fast the queue of a pool moves.
type pace struct {
	daemons int           // online ones that may take the jobs
	running int           // jobs that these run
	usual   time.Duration // how long such a job runs; 0 if unknown
}

// paces returns the pace of each pool of some jobs.
func paces(
	ctx context.Context, q *dbsqlc.Queries, jobs map[uuid.UUID]sdk.ProvisionerJob, all fleets,
) (map[pool]pace, error) {
	loads, err := q.ListWorkerLoads(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the jobs of provisioners: %w", err)
	}
	running := map[uuid.UUID]int{}
	for _, load := range loads {
		running[load.WorkerID] = int(load.Jobs)
	}
	out := map[pool]pace{}
	for _, job := range jobs {
		key := poolOf(job)
		if _, ok := out[key]; ok {
			continue
		}
		var p pace
		for _, d := range all[job.OrganizationID].online {
			if jobtags.Matches(job.Tags, d.tags) && !d.leaves() {
				p.daemons++
				p.running += running[d.id]
			}
		}
		tags, err := json.Marshal(job.Tags)
		if err != nil {
			return nil, fmt.Errorf("encode tags: %w", err)
		}
		seconds, err := q.GetUsualJobSeconds(ctx, dbsqlc.GetUsualJobSecondsParams{
			OrganizationID: job.OrganizationID, Tags: tags,
		})
		if err != nil {
			return nil, fmt.Errorf("read how long jobs run: %w", err)
		}
		p.usual = time.Duration(seconds * float64(time.Second))
		out[key] = p
	}
	return out, nil
}

// line says which place a job has in the queue, and about how long it waits: as many jobs must end as its place is, and
// as many end at a time as run.
func (p pace) line(place int) string {
	var text strings.Builder
	text.WriteString(ordinal(place) + " in line")
	switch {
	case place == 2:
		text.WriteString(" behind 1 other job")
	case place > 2:
		fmt.Fprintf(&text, " behind %d other jobs", place-1)
	}
	if p.usual > 0 && p.running > 0 {
		text.WriteString(", " + about(p.usual*time.Duration(place)/time.Duration(p.running)))
	}
	fmt.Fprintf(&text, ". Provisioners that may take it: %d. Jobs that they run now: %d.", p.daemons, p.running)
	return text.String()
}

// about names a duration as people do.
func about(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "less than a minute"
	case d < 90*time.Second:
		return "about 1 minute"
	case d < time.Hour:
		return fmt.Sprintf("about %d minutes", int(d.Round(time.Minute).Minutes()))
	case d < 90*time.Minute:
		return "about 1 hour"
	}
	return fmt.Sprintf("about %d hours", int(d.Round(time.Hour).Hours()))
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
