package jobs_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("rapid.checks").Value.String() == "100" {
		// Each check runs a server, a daemon and a database.
		if err := flag.Set("rapid.checks", "15"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

const kind = "workspace_build"

// world is a server's queue, which tests kill and restart, and the network between it and the daemons. The jobs are ann's.
type world struct {
	*coderdtest.Rows
	user   uuid.UUID // ann
	file   uuid.UUID
	opts   jobs.Options
	notify *pubsub.Postgres

	mu      sync.Mutex
	service *jobs.Service
	http    *http.Server
	addr    string
	daemons map[netip.Addr]jobs.Daemon
	failing func(what string) error // called by the handler
	state   []byte                  // the state that builds begin with
	lost    []*provisionerpb.Change // the changes that the handler was asked to name
	// finished is called with each result instead of recording it; nil records it.
	finished func(*provisionerpb.Result)
}

func newWorld(t testing.TB, change func(*jobs.Options)) *world {
	t.Helper()
	w := &world{Rows: coderdtest.NewRows(t), daemons: map[netip.Addr]jobs.Daemon{}}
	w.Archive = []byte(strings.Repeat("source ", 400_000))
	w.user, w.file = w.User("ann"), w.File("ann")
	w.notify = pubsub.NewPostgres(w.DB, slog.New(slog.DiscardHandler))
	t.Cleanup(w.notify.Close)
	w.opts = jobs.Options{DB: w.DB, PubSub: w.notify, Logger: logger(t), Grace: time.Minute, Fence: -1}
	if change != nil {
		change(&w.opts)
	}
	w.startServer()
	t.Cleanup(w.stopServer)
	return w
}

// logger shows all messages with -v when JOBS_TEST_LOG is set.
func logger(t testing.TB) *slog.Logger {
	if os.Getenv("JOBS_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("test", t.Name())
}

func (w *world) startServer() {
	w.T.Helper()
	service := jobs.New(w.opts)
	service.Handle(kind, recorder{w})
	if err := service.Start(context.Background()); err != nil {
		w.T.Fatalf("start service: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.T.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(service.RPCHandler(func(addr netip.Addr) (jobs.Daemon, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		d, ok := w.daemons[addr]
		return d, ok
	}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go server.Serve(l)
	w.mu.Lock()
	w.service, w.http, w.addr = service, server, l.Addr().String()
	w.mu.Unlock()
}

// stopServer ends the server like a kill, as seen by daemons and the database: streams break, leases stay.
func (w *world) stopServer() {
	w.mu.Lock()
	service, server := w.service, w.http
	w.service, w.http, w.addr = nil, nil, ""
	w.mu.Unlock()
	if server == nil {
		return
	}
	if err := server.Close(); err != nil {
		w.T.Errorf("close server: %v", err)
	}
	service.Stop()
}

func (w *world) insert(tags map[string]string) uuid.UUID {
	w.T.Helper()
	var id uuid.UUID
	err := w.DB.InTx(context.Background(), func(q *dbsqlc.Queries) error {
		row, err := w.service.Insert(context.Background(), q, jobs.NewJob{Kind: kind, Org: w.Org, Initiator: w.user, FileID: w.file, Tags: tags})
		id = row.ID
		return err
	})
	if err != nil {
		w.T.Fatalf("insert job: %v", err)
	}
	return id
}

func (w *world) row(id uuid.UUID) dbsqlc.ProvisionerJob {
	w.T.Helper()
	row, err := w.DB.GetJob(context.Background(), id)
	if err != nil {
		w.T.Fatalf("read job: %v", err)
	}
	return row
}

// await waits until a job has a status.
func (w *world) await(id uuid.UUID, status string) dbsqlc.ProvisionerJob {
	w.T.Helper()
	var row dbsqlc.ProvisionerJob
	testwait.Until(w.T, "job is "+status, func() error {
		if row = w.row(id); row.Status == status {
			return nil
		}
		return fmt.Errorf("job %s is %s, error %q, log %q", id, row.Status, row.Error, w.lines(id))
	})
	return row
}

// lines returns what a job's log and its handler recorded, in order, without the lines of the server and the daemon.
func (w *world) lines(id uuid.UUID) []string {
	w.T.Helper()
	rows, err := w.DB.Pool.Query(context.Background(), `SELECT output FROM provisioner_job_logs WHERE job_id = $1 AND stage NOT IN ('Queued', 'Setting up', 'Provisioner') ORDER BY id`, id)
	if err != nil {
		w.T.Fatal(err)
	}
	defer rows.Close()
	out := []string{}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			w.T.Fatal(err)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		w.T.Fatal(err)
	}
	return out
}

// recorder is a handler that writes its arguments into the job's log, in the given transaction.
type recorder struct{ w *world }

func (r recorder) record(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, what string) error {
	if err := q.InsertJobLogs(ctx, dbsqlc.InsertJobLogsParams{
		JobID: job.ID, CreatedAt: []time.Time{time.Now()}, Sources: []string{"provisioner_daemon"}, Levels: []string{"info"}, Stages: []string{"recorded"}, Outputs: []string{what},
	}); err != nil {
		return err
	}
	r.w.mu.Lock()
	failing := r.w.failing
	r.w.mu.Unlock()
	if failing != nil {
		return failing(what)
	}
	return nil
}

func (r recorder) Offer(_ context.Context, _ *dbsqlc.Queries, _ dbsqlc.ProvisionerJob, offer *provisionerpb.Offer) error {
	r.w.mu.Lock()
	failing, state := r.w.failing, r.w.state
	offer.Job = &provisionerpb.Offer_WorkspaceBuild{WorkspaceBuild: &provisionerpb.WorkspaceBuild{Transition: provisionerpb.Transition_TRANSITION_START, State: state}}
	r.w.mu.Unlock()
	if failing != nil {
		return failing("offer")
	}
	return nil
}

func (r recorder) Checkpoint(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, state []byte) error {
	return r.record(ctx, q, job, "checkpoint "+string(state))
}

func (r recorder) Resources(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, resources []*provisionerpb.Resource) error {
	return r.record(ctx, q, job, fmt.Sprintf("resources %d", len(resources)))
}

func (r recorder) Finish(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result) error {
	r.w.mu.Lock()
	finished := r.w.finished
	r.w.mu.Unlock()
	if finished != nil {
		finished(result)
		return nil
	}
	return r.record(ctx, q, job, "result "+string(result.GetWorkspaceBuild().GetState()))
}

// Seal reverses bytes, so that a test notices data that was not opened.
func (r recorder) Seal(_ context.Context, _ *dbsqlc.Queries, _ dbsqlc.ProvisionerJob, data []byte) ([]byte, error) {
	data = slices.Clone(data)
	slices.Reverse(data)
	return data, nil
}

func (r recorder) Open(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, data []byte) ([]byte, error) {
	return r.Seal(ctx, q, job, data)
}

func (r recorder) State(context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob) ([]byte, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.w.state, nil
}

func (r recorder) Lost(_ context.Context, _ *dbsqlc.Queries, _ dbsqlc.ProvisionerJob, changes []*provisionerpb.Change, result *provisionerpb.Result) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.lost = changes
	if len(changes) > 0 {
		result.Error += " Named."
	}
	return nil
}
