package jobs

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/websock"
)

// logPage is how many lines are read from the database at once.
const logPage = 200

// ServeLogs answers a request for a job's log: a JSON list, or with ?follow a websocket with one line a message that is closed
// when the job has ended. ?after= skips the lines up to an id. The caller has checked that the actor may read the job.
func (s *Service) ServeLogs(w http.ResponseWriter, r *http.Request, job uuid.UUID) error {
	var after int64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return fault.New(fault.Invalid, "The query parameter after is %q", text).WithField("after", "must be the id of a log line")
		}
	}
	if r.URL.Query().Has("follow") && r.URL.Query().Get("follow") != "false" {
		return s.followLogs(w, r, job, after)
	}
	return s.listLogs(w, r, job, after)
}

// listLogs writes the list page by page, so that a long log is never in memory at once.
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
	rows, err := s.deps.DB.ListJobLogs(ctx, dbsqlc.ListJobLogsParams{JobID: job, After: after, Before: math.MaxInt64, MaxRows: logPage})
	if err != nil {
		return nil, fmt.Errorf("list job logs: %w", err)
	}
	out := make([]sdk.JobLog, len(rows))
	for i, row := range rows {
		out[i] = sdk.JobLog{ID: row.ID, CreatedAt: row.CreatedAt, Source: sdk.LogSource(row.Source), Level: sdk.LogLevel(row.Level), Stage: row.Stage, Output: row.Output}
	}
	return out, nil
}

// followLogs sends lines as they come. It looks at the database when the job is announced to have changed, and never holds more
// than a page.
func (s *Service) followLogs(w http.ResponseWriter, r *http.Request, job uuid.UUID, after int64) error {
	changed := notify.NewWake()
	changed.Poke() // look once at the beginning
	cancel := s.deps.PubSub.Subscribe(Channel(job), func(string) { changed.Poke() })
	defer cancel()
	ws, err := websock.Accept(w, r, websock.AcceptOptions{})
	if err != nil {
		return nil // answered by Accept
	}
	ctx, done := ws.Drain(context.WithoutCancel(r.Context()))
	defer done()
	look := time.NewTicker(stallCheck)
	defer look.Stop()
	said, status := "", statusPending
	for {
		select {
		case <-look.C:
			if said, err = s.sayStalled(ctx, ws, job, status, after, said); err != nil {
				return nil // the client left
			}
			continue
		case <-ctx.Done():
			return ws.Close(websock.StatusGoingAway, "")
		case <-r.Context().Done():
			return ws.Close(websock.StatusPolicy, "the session has ended")
		case <-s.ctx.Done():
			return ws.Close(websock.StatusTryAgain, "the server is stopping")
		case <-changed:
		}
		if status, err = s.sendLogs(ctx, ws, job, &after); err != nil {
			s.log.Debug("job log not followed to its end", "job", job, "err", err)
			return ws.Close(websock.StatusInternal, "the log cannot be read now")
		}
		if ended(status) {
			return ws.Close(websock.StatusNormal, "")
		}
	}
}

// stallCheck is how often those who follow a log look whether the database keeps the job from going on.
const stallCheck = 2 * time.Second

// sayStalled tells a client once why the job's log does not go on: the database that would keep the line cannot take it.
func (s *Service) sayStalled(ctx context.Context, ws *websock.Conn, job uuid.UUID, status string, after int64, said string) (string, error) {
	s.mu.Lock()
	why, then := s.stalled[job], "The job goes on; what it reports is stored as soon as that is possible."
	if why == "" && status == statusPending {
		why, then = s.held, "The job begins as soon as that is possible."
	}
	s.mu.Unlock()
	if why == said || why == "" {
		return why, nil
	}
	return why, ws.WriteJSON(ctx, sdk.JobLog{
		ID: after, CreatedAt: time.Now(), Source: "provisioner_daemon", Level: "warn", Stage: "Storing",
		Output: why + " " + then,
	})
}

// sendLogs sends what is new and returns the job's status. All of the log of an ended job has been sent.
func (s *Service) sendLogs(ctx context.Context, ws *websock.Conn, job uuid.UUID, after *int64) (status string, err error) {
	row, err := s.deps.DB.GetJob(ctx, job) // before the lines: an ended job writes no more
	if err != nil {
		return "", fmt.Errorf("read job: %w", err)
	}
	for {
		page, err := s.logs(ctx, job, *after)
		if err != nil {
			return "", err
		}
		for _, line := range page {
			if err := ws.WriteJSON(ctx, line); err != nil {
				return "", err
			}
			*after = line.ID
		}
		if len(page) < logPage {
			return row.Status, nil
		}
	}
}
