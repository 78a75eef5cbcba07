package jobs_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
)

// organization writes an organization.
func (w *world) organization(name string) uuid.UUID {
	w.T.Helper()
	id := uuid.New()
	w.Exec("INSERT INTO organizations (id, name) VALUES ($1, $2)", id, name)
	return id
}

// wait puts n jobs of a user into the queue, without telling a server. The first one is the oldest.
func (w *world) wait(org uuid.UUID, user string, n int, tags string) {
	w.T.Helper()
	w.Exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, created_at, log_length)
		SELECT gen_random_uuid(), $1, $2, $3, $4, $5, clock_timestamp() + n * interval '1 microsecond', 1 FROM generate_series(1, $6::int) n`, org, w.User(user), kind, w.file, []byte(tags), n)
}

const anyDaemon = `{"scope": "organization", "owner": ""}`

// beside starts another server on the same database.
func (w *world) beside() *world {
	w.T.Helper()
	other := &world{Rows: w.Rows, user: w.user, file: w.file, opts: w.opts, daemons: map[netip.Addr]jobs.Daemon{}}
	other.notify = pubsub.NewPostgres(w.DB, slog.New(slog.DiscardHandler))
	w.T.Cleanup(other.notify.Close)
	other.opts.PubSub = other.notify
	other.startServer()
	w.T.Cleanup(other.stopServer)
	return other
}

// initiator returns the name of the user whose job an offer is.
func (w *world) initiator(id []byte) (name string) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(w.T.Context(), "SELECT u.username FROM provisioner_jobs j JOIN users u ON u.id = j.initiator_id WHERE j.id = $1", uuid.UUID(id)).Scan(&name); err != nil {
		w.T.Fatal(err)
	}
	return name
}

// TestOrganizationsTakeTurns checks that a long queue of one organization's user does not keep built-in daemons from the
// users of the others, and that a daemon of one organization takes only that one's jobs.
func TestOrganizationsTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	second, third := w.organization("second"), w.organization("third")
	w.wait(second, "greedy", 1000, anyDaemon)
	w.wait(w.Org, "bob", 2, anyDaemon)
	w.wait(third, "carol", 1, anyDaemon)

	builtIn := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "built-in", BuiltIn: true})
	var got []string
	for range 5 {
		got = append(got, w.initiator(builtIn.accept().GetJobId()))
	}
	if diff := cmp.Diff([]string{"greedy", "bob", "carol", "greedy", "bob"}, got); diff != "" {
		t.Errorf("order of built-in daemons (-want +got):\n%s", diff)
	}

	w.wait(w.Org, "dave", 1, anyDaemon)
	own := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "own", Organization: third})
	w.wait(third, "erin", 1, anyDaemon)
	if got := w.initiator(own.accept().GetJobId()); got != "erin" {
		t.Errorf("the daemon of an organization got a job of %s, want erin's", got)
	}
}

// TestServersAreFair checks that several servers, each with its own daemons, share the running jobs among users: one with a
// long queue gets no more than those with a short one, and no job runs twice.
func TestServersAreFair(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	servers := []*world{w, w.beside(), w.beside()}
	w.wait(w.Org, "greedy", 1000, anyDaemon)
	for _, name := range []string{"bob", "carol"} {
		w.wait(w.Org, name, 3, anyDaemon)
	}
	var daemons []*raw
	for i, server := range servers {
		daemons = append(daemons, server.raw(t, jobs.Daemon{ID: uuid.New(), Name: fmt.Sprint("daemon-", i)}))
	}
	ran := map[string]int{}
	var ids [][]byte
	for range 3 { // nine jobs run at the same time
		for _, d := range daemons {
			id := d.accept().GetJobId()
			ran[w.initiator(id)]++
			ids = append(ids, id)
		}
	}
	if diff := cmp.Diff(map[string]int{"greedy": 3, "bob": 3, "carol": 3}, ran); diff != "" {
		t.Errorf("running jobs by user (-want +got):\n%s", diff)
	}
	slices.SortFunc(ids, bytes.Compare)
	if n := len(slices.CompactFunc(ids, bytes.Equal)); n != 9 {
		t.Errorf("%d different jobs run, want 9", n)
	}
}

// TestManyTagsStarveNobody checks that jobs with many sets of tags that no daemon has do not keep others waiting.
func TestManyTagsStarveNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for n := range 300 {
		w.wait(w.Org, "greedy", 1, strings.Replace(anyDaemon, "{", fmt.Sprintf(`{"a%d": "%d", `, n%7, n), 1))
	}
	w.wait(w.Org, "bob", 1, anyDaemon)
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	if got := w.initiator(r.accept().GetJobId()); got != "bob" {
		t.Errorf("the daemon got a job of %s, want bob's", got)
	}
}

// TestLeaseReadsFewRows checks that leasing a job reads no more rows of a long queue with a long history than of a
// short one.
func TestLeaseReadsFewRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, name := range []string{"greedy", "bob", "carol"} {
		w.wait(w.Org, name, 500, anyDaemon)
	}
	w.Exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, status, started_at, completed_at)
		SELECT gen_random_uuid(), organization_id, initiator_id, kind, file_id, tags, 'succeeded', now(), now() FROM provisioner_jobs, generate_series(1, 5)`)
	w.Exec("ANALYZE provisioner_jobs")
	daemon := uuid.New()
	w.Exec(`INSERT INTO provisioner_daemons (id, organization_id, name) VALUES ($1, $2, 'raw')`, daemon, w.Org)
	conn, err := w.DB.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	read := func(tx pgx.Tx, rows *int64) error { // those that the session has read since it last reported them
		return tx.QueryRow(t.Context(), `SELECT pg_stat_get_xact_tuples_returned('provisioner_jobs'::regclass) + sum(pg_stat_get_xact_tuples_returned(indexrelid))
			FROM pg_index WHERE indrelid = 'provisioner_jobs'::regclass`).Scan(rows)
	}
	for range 8 { // PostgreSQL may change to a generic plan after five
		var before, after int64
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if err := read(tx, &before); err != nil {
				return err
			}
			job, err := dbsqlc.New(tx).LeaseJob(t.Context(), dbsqlc.LeaseJobParams{
				WorkerID: &daemon, LastOrganization: uuid.Max, Tags: []byte(anyDaemon), Untagged: true,
			})
			if err != nil || job.Status != "running" {
				return fmt.Errorf("lease %q: %w", job.Status, err)
			}
			return read(tx, &after)
		}); err != nil {
			t.Fatal(err)
		}
		if rows := after - before; rows <= 0 || rows > 100 {
			t.Errorf("a lease reads %d rows of jobs, want at most 100", rows)
		}
	}
}
