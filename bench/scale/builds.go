package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// executor creates a workspace's agent without Terraform: a log line, a checkpoint, and a resource with an agent. It
// runs all other jobs as package echo does.
type executor struct {
	echo.Executor
	mu     sync.Mutex // guards the fields below
	tokens map[uuid.UUID]secret.Token
	begun  map[uuid.UUID]time.Time // by job
}

var _ job.Executor = (*executor)(nil)

func newExecutor() *executor {
	return &executor{tokens: map[uuid.UUID]secret.Token{}, begun: map[uuid.UUID]time.Time{}}
}

// Run implements job.Executor.
func (e *executor) Run(ctx context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
	began := time.Now()
	build := run.Offer.GetWorkspaceBuild()
	if build.GetTransition() != provisionerpb.Transition_TRANSITION_START {
		return e.Executor.Run(ctx, stop, run)
	}
	agent, token := uuid.New(), secret.Token(uuid.NewString())
	if id, err := uuid.FromBytes(build.GetState()); err == nil { // a workspace keeps its agent
		agent = id
	}
	e.mu.Lock()
	if known, ok := e.tokens[agent]; ok {
		token = known
	}
	e.tokens[agent] = token
	e.begun[uuid.UUID(run.Offer.GetJobId())] = began
	e.mu.Unlock()
	run.Sink.Log(&provisionerpb.LogLine{
		At: timestamppb.Now(), Level: provisionerpb.LogLevel_LOG_LEVEL_INFO,
		Source: provisionerpb.LogSource_LOG_SOURCE_EXECUTOR,
		Stage:  "Starting workspace", Output: "The agent is created.",
	})
	state := agent[:]
	run.Sink.Checkpoint(state)
	return &provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
		State: state,
		Resources: []*provisionerpb.Resource{{Type: "terraform_data", Name: "dev", Agents: []*provisionerpb.Agent{{
			Id: agent[:], Name: "main", Token: token.Reveal(), Os: "linux", Arch: "amd64",
			ConnectionTimeoutSeconds: 120,
		}}}},
	}}}
}

// agents returns the tokens of all agents.
func (e *executor) agents() map[uuid.UUID]secret.Token {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make(map[uuid.UUID]secret.Token, len(e.tokens))
	for id, token := range e.tokens {
		all[id] = token
	}
	return all
}

// provisioners starts daemons that run jobs until stop is called, and waits until the server has welcomed them.
func (d *deployment) provisioners(ctx context.Context, daemons, slots int) (stop func(), err error) {
	var joined []*provisionerd.Participant
	stop = func() {
		for _, p := range joined {
			if err := p.Stop(context.WithoutCancel(ctx)); err != nil {
				fmt.Println("stop a provisioner:", err)
			}
		}
	}
	for n := range daemons {
		name := fmt.Sprint("daemon-", n)
		header := http.Header{}
		header.Set(sdk.ProvisionerNameHeader, name)
		header.Set(sdk.ProvisionerInstanceHeader, uuid.NewString())
		header.Set(sdk.ProvisionerPSKHeader, psk)
		header.Set(sdk.ProvisionerTagsHeader, "")
		p, err := provisionerd.Join(provisionerd.RunOptions{
			Options: provisionerd.Options{
				Logger: slog.New(slog.DiscardHandler), Name: name, StateDir: filepath.Join(d.dir, name), Slots: slots,
				Executor: d.executor,
			},
			URL:    d.url,
			Header: func(context.Context) (http.Header, error) { return header.Clone(), nil },
		})
		if err != nil {
			stop()
			return nil, err
		}
		joined = append(joined, p)
	}
	for _, p := range joined {
		select {
		case <-p.Daemon.Started():
		case <-p.Done():
			stop()
			return nil, fmt.Errorf("join a provisioner: %w", p.Err())
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		}
	}
	return stop, nil
}

// pending returns how many jobs have not ended, and fails if one has failed.
func (d *deployment) pending(ctx context.Context) (n int, err error) {
	var failed int
	err = d.db.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE completed_at IS NULL), count(*) FILTER (WHERE status = 'failed') FROM provisioner_jobs`).Scan(&n, &failed)
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d jobs have failed", failed))
	}
	return n, err
}

// each calls f for 0 to n-1, up to at once at a time, and returns the first error.
func each(n, atOnce int, f func(int) error) error {
	next := make(chan int)
	var wg sync.WaitGroup
	failed := make(chan error, atOnce)
	stop := make(chan struct{})
	once := sync.OnceFunc(func() { close(stop) })
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					failed <- err
					once()
					return
				}
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-stop:
			break feed
		}
	}
	close(next)
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// builds measures a queue of builds that provisioners work off, and the time that a build waits for an idle one.
func (b *bench) builds(ctx context.Context) error {
	d, err := b.deployment(ctx)
	if err != nil {
		return err
	}
	before, err := d.usage()
	if err != nil {
		return err
	}
	if err := each(b.queue, 8, func(i int) error {
		_, err := d.workspace(ctx, d.admin, fmt.Sprint("w", i))
		return err
	}); err != nil {
		return err
	}
	after, err := d.usage()
	if err != nil {
		return err
	}
	took, used := after.since(before)
	b.info("workspaces created by the API", float64(b.queue)/took.Seconds(), "/s",
		fmt.Sprintf("8 clients; server %.1f ms CPU each, database %.1f", milliseconds(used.server)/float64(b.queue),
			milliseconds(used.database)/float64(b.queue)))

	const daemons, slots = 4, 4
	before = after
	began := time.Now()
	stop, err := d.provisioners(ctx, daemons, slots)
	if err != nil {
		return err
	}
	defer stop()
	if err := until(ctx, slow, "run the queued builds", func() (bool, error) { n, err := d.pending(ctx); return n == 0, err }); err != nil {
		return err
	}
	var last time.Time
	if err := d.db.Pool.QueryRow(ctx, `SELECT max(completed_at) FROM provisioner_jobs`).Scan(&last); err != nil {
		return err
	}
	if after, err = d.usage(); err != nil {
		return err
	}
	_, used = after.since(before)
	n := float64(b.queue)
	b.atLeast("builds from a full queue", n/last.Sub(began).Seconds(), "/s", 200,
		fmt.Sprintf("%d daemons × %d slots, joining included; CPU each: server %.1f ms, database %.1f, provisioners %.1f", daemons, slots,
			milliseconds(used.server)/n, milliseconds(used.database)/n, milliseconds(used.load)/n))
	return b.dispatch(ctx, d)
}

// dispatch measures how long a build waits for an idle provisioner while others wait that it may not take.
func (b *bench) dispatch(ctx context.Context, d *deployment) error {
	if _, err := d.db.Pool.Exec(ctx, `INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, log_length)
		SELECT gen_random_uuid(), organization_id, initiator_id, 'workspace_build', file_id, '{"scope": "organization", "owner": "", "pool": "absent"}', 1
		FROM (SELECT * FROM provisioner_jobs LIMIT 1) one, generate_series(1, $1)`, b.queue); err != nil {
		return err
	}
	const runs = 200
	for i := range runs {
		if _, err := d.workspace(ctx, d.admin, fmt.Sprint("d", i)); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil { // idle again
			return err
		}
	}
	created := map[uuid.UUID]time.Time{}
	if err := until(ctx, slow, "run the builds", func() (bool, error) { n, err := d.pending(ctx); return n == b.queue, err }); err != nil {
		return err
	}
	rows, err := d.db.Pool.Query(ctx, `SELECT j.id, j.created_at FROM provisioner_jobs j JOIN workspace_builds b ON b.job_id = j.id
		JOIN workspaces w ON w.id = b.workspace_id WHERE w.name ~ '^d[0-9]+$'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		var at time.Time
		if err := rows.Scan(&id, &at); err != nil {
			return err
		}
		created[id] = at
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var waited []time.Duration
	d.executor.mu.Lock()
	for id, at := range created {
		if began, ok := d.executor.begun[id]; ok {
			waited = append(waited, began.Sub(at))
		}
	}
	d.executor.mu.Unlock()
	if len(waited) != runs {
		return fmt.Errorf("%d of %d builds ran", len(waited), runs)
	}
	b.atMost("dispatch p99", milliseconds(quantile(waited, 0.99)), "ms", 50,
		fmt.Sprintf("beside %d waiting builds; from the transaction of the request to the executor; p50 %.3g", b.queue,
			milliseconds(quantile(waited, 0.5))))
	_, err = d.db.Pool.Exec(ctx, `DELETE FROM provisioner_jobs WHERE tags ->> 'pool' = 'absent'`)
	return err
}
