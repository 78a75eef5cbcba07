package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// statements counts statements by the name of their query.
type statements struct {
	mu sync.Mutex // guards by
	by map[string]int
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if _, rest, ok := strings.Cut(data.SQL, "-- name: "); ok {
		name, _, _ := strings.Cut(rest, " ")
		s.mu.Lock()
		s.by[name]++
		s.mu.Unlock()
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[name]
}

// more checks that a statement was sent more than n times.
func (s *statements) more(name string, n int) func() error {
	return func() error {
		got := s.count(name)
		return testwait.Unless(got > n, "%s was sent %d times, want more than %d", name, got, n)
	}
}

// countingWorld returns a world whose server's statements are counted.
func countingWorld(t *testing.T) (*world, *statements) {
	t.Helper()
	counted := &statements{by: map[string]int{}}
	w := newWorld(t, func(o *jobs.Options) {
		config := o.DB.Pool.Config()
		config.ConnConfig.Tracer = counted
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		o.DB = &database.DB{Queries: dbsqlc.New(pool), Pool: pool}
	})
	return w, counted
}

// TestEventsAreStoredTogether checks that events that arrive while the server stores another are stored in one transaction, and that each of
// them has its effect.
func TestEventsAreStoredTogether(t *testing.T) {
	t.Parallel()
	w, counted := countingWorld(t)
	id := w.insert(nil)
	as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
	d := w.raw(t, as)
	offer := d.accept()

	// The first event waits for the job's row.
	tx, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SELECT FROM provisioner_jobs WHERE id = $1 FOR UPDATE", id); err != nil {
		t.Fatal(err)
	}
	before, locks := counted.count("AdvanceJob"), counted.count("LockJob")
	d.event(offer, logged(provisionerpb.LogLevel_LOG_LEVEL_INFO, "line 1"))
	testwait.Until(t, "the server stores the first event", counted.more("LockJob", locks))
	const events = 20
	for i := 2; i < events; i++ {
		d.event(offer, logged(provisionerpb.LogLevel_LOG_LEVEL_INFO, fmt.Sprint("line ", i)))
	}
	d.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("done")}})
	testwait.Until(t, "the other events have arrived", func() error { return testwait.Equal(w.service.Unapplied(as.ID), events-1) })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for next[*provisionerpb.ServerMessage_Ack](d).Ack.GetSeq() < events {
		continue
	}
	w.await(id, "succeeded")
	if n := counted.count("AdvanceJob") - before; n > 2 {
		t.Errorf("%d transactions stored %d events, want 2: the first, and those that arrived meanwhile", n, events)
	}
	lines := w.lines(id)
	if len(lines) < events { // and the result's
		t.Fatalf("the log has %d lines: %q", len(lines), lines)
	}
	for i, line := range lines[len(lines)-events : len(lines)-1] {
		if want := fmt.Sprint("line ", i+1); !strings.HasSuffix(line, want) {
			t.Errorf("line %d: got %q, want %q", i, line, want)
		}
	}
}

// TestEqualDaemonsAskOnce checks that a wake of the dispatcher asks for a job once for all daemons that may take the same jobs.
func TestEqualDaemonsAskOnce(t *testing.T) {
	t.Parallel()
	w, counted := countingWorld(t)
	const equal = 8
	for i := range equal {
		d := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: fmt.Sprint("equal", i)})
		d.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: 1}}})
		next[*provisionerpb.ServerMessage_Welcome](d)
	}
	other := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "other", Tags: map[string]string{"pool": "other"}})
	other.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: 1}}})
	const absent = 30
	for range absent {
		before := counted.count("LeaseJob")
		w.insert(map[string]string{"pool": "absent"})
		testwait.Until(t, "the dispatcher wakes", counted.more("LeaseJob", before))
	}
	w.await(w.insert(map[string]string{"pool": "other"}), "running")
	wakes := absent + 1 + 2*(equal+1) // for each job, and for each daemon's arrival and its Ready
	if n := counted.count("LeaseJob"); n > 2*wakes+1 {
		t.Errorf("at most %d wakes made %d statements that look for a job, want one for each of the 2 kinds of daemons", wakes, n)
	}
}
