package jobs

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// logPage is the number of lines in one database read.
const logPage = 200

// ServeLogs answers a request for a job's log: a JSON list, or with ?follow a websocket that carries one line a message
// and closes when the job has ended. ?after= skips the lines up to an id. The caller must have checked that the actor
// may read the job.
func (s *Service) ServeLogs(w http.ResponseWriter, r *http.Request, job uuid.UUID) error {
	var after int64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return fault.New(fault.Invalid, "The query parameter after is %q", text).
				WithField("after", "must be the id of a log line")
		}
	}
	if r.URL.Query().Has("follow") && r.URL.Query().Get("follow") != "false" {
		return s.followLogs(w, r, job, after)
	}
	return s.listLogs(w, r, job, after)
}

// listLogs writes the list page by page, so that a long log is never entirely in memory.
func (s *Service) listLogs(w http.ResponseWriter, r *http.Request, job uuid.UUID, after int64) error {
	return httpapi.WriteList(w, func() ([]sdk.JobLog, error) {
		page, err := s.logs(r.Context(), job, after)
		if len(page) > 0 {
			after = page[len(page)-1].ID
		}
		return page, err
	})
}

func (s *Service) logs(ctx context.Context, job uuid.UUID, after int64) ([]sdk.JobLog, error) {
	rows, err := s.opts.DB.ListJobLogs(ctx, dbsqlc.ListJobLogsParams{
		JobID: job, After: after, Before: math.MaxInt64, MaxRows: logPage,
	})
	if err != nil {
		return nil, fmt.Errorf("list job logs: %w", err)
	}
	out := make([]sdk.JobLog, len(rows))
	for i, row := range rows {
		out[i] = sdk.JobLog{
			ID: row.ID, CreatedAt: row.CreatedAt, Source: sdk.LogSource(row.Source), Level: sdk.LogLevel(row.Level),
			Stage: row.Stage, Output: row.Output,
		}
	}
	return out, nil
}

// followLogs sends lines as they arrive. It reads the database when a notification says that the job has changed, and
// never holds more than a page.
func (s *Service) followLogs(w http.ResponseWriter, r *http.Request, job uuid.UUID, after int64) error {
	changed := notify.NewWake()
	changed.Poke() // look once at the beginning
	cancel := s.opts.PubSub.Subscribe(Channel(job), func(string) { changed.Poke() })
	defer cancel()
	stream := httpapi.StreamOptions{Life: s.ctx, Logger: s.log, Failed: "the log cannot be read now"}
	return httpapi.ServeWebsocket(w, r, stream, func(ctx context.Context, send func(...httpapi.Event) error) (err error) {
		look := time.NewTicker(stallCheck)
		defer look.Stop()
		said, status := "", statusPending
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-look.C:
				if said, err = s.sayStalled(send, job, status, after, said); err != nil {
					return err
				}
				continue
			case <-changed:
			}
			if status, err = s.sendLogs(ctx, job, &after, send); err != nil || ended(status) {
				return err
			}
		}
	})
}

// stallCheck is the interval at which followers of a log check whether the database blocks the job.
const stallCheck = 2 * time.Second

// sayStalled tells a client once why the job's log has stopped: the database that would keep the next line cannot store
// it.
func (s *Service) sayStalled(
	send func(...httpapi.Event) error, job uuid.UUID, status string, after int64, said string,
) (string, error) {
	s.mu.Lock()
	why, then := s.stalled[job], "The job continues, and its reports are stored as soon as possible."
	if why == "" && status == statusPending {
		why, then = s.held, "The job starts as soon as possible."
	}
	s.mu.Unlock()
	if why == said || why == "" {
		return why, nil
	}
	return why, send(httpapi.Event{Data: sdk.JobLog{
		ID: after, CreatedAt: time.Now(), Source: "provisioner_daemon", Level: "warn", Stage: "Storing",
		Output: why + " " + then,
	}})
}

// sendLogs sends the new lines and returns the job's status. If the job has ended, sendLogs has sent all of its log.
func (s *Service) sendLogs(
	ctx context.Context, job uuid.UUID, after *int64, send func(...httpapi.Event) error,
) (status string, err error) {
	row, err := s.opts.DB.GetJob(ctx, job) // before the lines: a job that has ended writes no more
	if err != nil {
		return "", fmt.Errorf("read job: %w", err)
	}
	for {
		page, err := s.logs(ctx, job, *after)
		if err != nil {
			return "", err
		}
		for _, line := range page {
			if err := send(httpapi.Event{Data: line}); err != nil {
				return "", err
			}
			*after = line.ID
		}
		if len(page) < logPage {
			return row.Status, nil
		}
	}
}
