package jobs_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/jobs"
	"github.com/codermesh/codermesh/coderd/pubsub"
	"github.com/codermesh/codermesh/provisionerd"
	"github.com/codermesh/codermesh/provisionerd/job"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
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

// hang bounds waits that a correct program never uses up.
const hang = 30 * time.Second

// world is a database, a server's queue and the network between it and the daemons.
type world struct {
	t      testing.TB
	db     *database.DB
	org    uuid.UUID
	user   uuid.UUID
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
	w := &world{t: t, db: dbtest.New(t), user: uuid.New(), file: uuid.New(), daemons: map[netip.Addr]jobs.Daemon{}}
	ctx := t.Context()
	org, err := w.db.GetDefaultOrganization(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.org = org.ID
	for sql, args := range map[string][]any{
		`INSERT INTO users (id, username, email) VALUES ($1, 'ann', 'ann@example.com')`: {w.user},
	} {
		if _, err := w.db.Pool.Exec(ctx, sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.db.Pool.Exec(ctx, `INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, encode(sha256($2), 'hex'), 'application/x-tar', $2, $3)`,
		w.file, []byte(strings.Repeat("source ", 400_000)), w.user); err != nil {
		t.Fatal(err)
	}
	w.notify = pubsub.NewPostgres(w.db, slog.New(slog.DiscardHandler))
	t.Cleanup(w.notify.Close)
	w.opts = jobs.Options{DB: w.db, PubSub: w.notify, Logger: logger(t), Grace: time.Minute, Fence: -1}
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
	w.t.Helper()
	service := jobs.New(w.opts)
	service.Handle(kind, recorder{w})
	if err := service.Start(context.Background()); err != nil {
		w.t.Fatalf("start service: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
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
		w.t.Errorf("close server: %v", err)
	}
	service.Stop()
}

func (w *world) insert(tags map[string]string) uuid.UUID {
	w.t.Helper()
	var id uuid.UUID
	err := w.db.InTx(context.Background(), func(q *dbsqlc.Queries) error {
		row, err := w.service.Insert(context.Background(), q, jobs.NewJob{Kind: kind, Org: w.org, Initiator: w.user, FileID: w.file, Tags: tags})
		id = row.ID
		return err
	})
	if err != nil {
		w.t.Fatalf("insert job: %v", err)
	}
	return id
}

func (w *world) row(id uuid.UUID) dbsqlc.ProvisionerJob {
	w.t.Helper()
	row, err := w.db.GetJob(context.Background(), id)
	if err != nil {
		w.t.Fatalf("read job: %v", err)
	}
	return row
}

// await waits until a job has a status.
func (w *world) await(id uuid.UUID, status string) dbsqlc.ProvisionerJob {
	w.t.Helper()
	var row dbsqlc.ProvisionerJob
	w.eventually("job is "+status, func() bool {
		row = w.row(id)
		return row.Status == status
	}, func() string { return fmt.Sprintf("it is %s, error %q, log %q", row.Status, row.Error, w.lines(id)) })
	return row
}

func (w *world) eventually(what string, is func() bool, but func() string) {
	w.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(hang); !is(); <-ticker.C {
		if time.Now().After(deadline) {
			detail := ""
			if but != nil {
				detail = ": " + but()
			}
			w.t.Fatalf("waited in vain until %s%s", what, detail)
		}
	}
}

// lines returns what a job's log and its handler recorded, in order, without the lines of the server and the daemon.
func (w *world) lines(id uuid.UUID) []string {
	w.t.Helper()
	rows, err := w.db.Pool.Query(context.Background(), `SELECT output FROM provisioner_job_logs WHERE job_id = $1 AND stage NOT IN ('Queued', 'Setting up') ORDER BY id`, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	out := []string{}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
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

// link is a daemon's connection to the server, which tests can cut and block.
type link struct {
	w    *world
	from netip.Addr

	mu      sync.Mutex
	blocked bool
	conns   map[net.Conn]struct{}
}

var errBlocked = errors.New("the link is down")

func (l *link) dial(ctx context.Context) (net.Conn, error) {
	l.w.mu.Lock()
	addr := l.w.addr
	l.w.mu.Unlock()
	l.mu.Lock()
	blocked := l.blocked
	l.mu.Unlock()
	if blocked || addr == "" {
		return nil, errBlocked
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: l.from.AsSlice()}}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked {
		return nil, errors.Join(errBlocked, conn.Close())
	}
	l.conns[conn] = struct{}{}
	return conn, nil
}

// cut breaks the current connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		conn.Close()
		delete(l.conns, conn)
	}
}

func (l *link) block(blocked bool) {
	l.mu.Lock()
	l.blocked = blocked
	l.mu.Unlock()
	if blocked {
		l.cut()
	}
}

// provisioner is a daemon with its link and executor.
type provisioner struct {
	*provisionerd.Daemon
	link *link
	exec *executor
	dir  string
	as   jobs.Daemon
}

var addresses struct {
	sync.Mutex
	next int
}

// register gives a daemon an address of its own on loopback.
func (w *world) register(d jobs.Daemon) netip.Addr {
	addresses.Lock()
	addresses.next++
	n := addresses.next
	addresses.Unlock()
	addr := netip.AddrFrom4([4]byte{127, byte(1 + n>>16), byte(n >> 8), byte(n)})
	w.mu.Lock()
	w.daemons[addr] = d
	w.mu.Unlock()
	return addr
}

// start runs a daemon. A nil executor succeeds at once.
func (w *world) start(name string, tags map[string]string, exec *executor, change func(*provisionerd.Options)) *provisioner {
	w.t.Helper()
	as := jobs.Daemon{ID: uuid.New(), Name: name, Tags: tags}
	if tags["scope"] == "user" {
		as.Owner = uuid.MustParse(tags["owner"])
	}
	return w.startIn(as, w.t.TempDir(), exec, change)
}

func (w *world) startIn(as jobs.Daemon, dir string, exec *executor, change func(*provisionerd.Options)) *provisioner {
	w.t.Helper()
	if exec == nil {
		exec = &executor{}
	}
	l := &link{w: w, from: w.register(as), conns: map[net.Conn]struct{}{}}
	opts := provisionerd.Options{Logger: logger(w.t), Name: as.Name, StateDir: dir, Executor: exec, Dial: l.dial}
	if change != nil {
		change(&opts)
	}
	p := &provisioner{provisionerd.New(opts), l, exec, dir, as}
	if err := p.Start(); err != nil {
		w.t.Fatalf("start daemon: %v", err)
	}
	w.t.Cleanup(p.kill)
	return p
}

// kill stops a daemon without notifying the server.
func (p *provisioner) kill() {
	p.link.block(true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Stop(ctx); err != nil {
		p.link.w.t.Errorf("stop daemon %s: %v", p.as.Name, err)
	}
}

// crash turns the daemon into a ghost that the server cannot hear, and starts a new process of it on a copy of the current
// disk.
func (p *provisioner) crash(exec *executor) *provisioner {
	w := p.link.w
	w.t.Helper()
	p.link.block(true)
	w.mu.Lock()
	delete(w.daemons, p.link.from)
	w.mu.Unlock()
	dir := w.t.TempDir()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".journal" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(p.dir, e.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.startIn(p.as, dir, exec, nil)
}

// executor runs what a test tells it to run.
type executor struct {
	run     func(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result
	recover func(id uuid.UUID, epoch uint64) ([]byte, error)
	known   chan<- job.Known // receives the argument of Recover; nil to ignore it

	mu     sync.Mutex
	begun  []uint64 // epochs, in order
	active int
	most   int
}

func (e *executor) Name() string { return "test" }
func (e *executor) Close() error { return nil }

func (e *executor) Run(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
	e.mu.Lock()
	e.begun = append(e.begun, run.Offer.GetEpoch())
	e.active++
	e.most = max(e.most, e.active)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.active--
		e.mu.Unlock()
	}()
	if e.run == nil {
		return succeeded("done")
	}
	return e.run(ctx, stop, run)
}

func (e *executor) Recover(_ context.Context, id [16]byte, epoch uint64, known job.Known) (job.Remains, error) {
	if e.known != nil {
		e.known <- known
	}
	if e.recover == nil {
		return job.Remains{State: known.Checkpoint}, nil
	}
	state, err := e.recover(id, epoch)
	if state == nil {
		state = known.Checkpoint
	}
	return job.Remains{State: state}, err
}

func (e *executor) runs() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.begun)
}

func succeeded(state string) *provisionerpb.Result {
	return &provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{State: []byte(state)}}}
}

func failed(state, why string) *provisionerpb.Result {
	r := succeeded(state)
	r.Error = cmp.Or(why, "broken")
	return r
}

func say(run job.Run, text string) {
	run.Sink.Log(&provisionerpb.LogLine{Level: provisionerpb.LogLevel_LOG_LEVEL_INFO, Source: provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, Stage: "test", Output: text})
}

// blockUntil returns a run that ends when the gate closes or when it is asked to stop.
func blockUntil(gate <-chan struct{}) func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
	return func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		select {
		case <-gate:
			return succeeded("")
		case <-stop:
			return failed("", "stopped")
		}
	}
}
