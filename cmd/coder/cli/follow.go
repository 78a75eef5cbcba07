package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/tty"
)

const (
	// queueLook is how often a job that has not begun is looked at.
	queueLook = time.Second
	// awayLimit is how long a server may be away before following it is given up; builds survive that long.
	awayLimit = 10 * time.Minute
	// cancelTimeout bounds the request that cancels a job when the person interrupts.
	cancelTimeout = 10 * time.Second
)

// follower shows how builds and imports go on.
type follower struct {
	client  *sdk.Client
	streams *tty.Streams
	verbose bool // with debug lines
}

// job says how to follow one job.
type job struct {
	what   string // for people: "the build"
	logs   func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error]
	job    func(context.Context) (sdk.ProvisionerJob, error)
	cancel func(context.Context) error
}

// followJob shows a job's log, stage by stage, until the job ends, and returns the ended job. A server that goes away is
// waited for. When ctx is canceled, the job is too.
func (w follower) followJob(ctx context.Context, j job) (sdk.ProvisionerJob, error) {
	p := w.streams.Progress()
	job, err := w.watchJob(ctx, j, p)
	p.Stop(err == nil && job.Status == sdk.JobSucceeded)
	if errors.Is(err, context.Canceled) {
		w.cancelJob(ctx, j)
	}
	return job, err
}

// cancelJob asks the server to cancel what the person does not want to wait for any more.
func (w follower) cancelJob(ctx context.Context, j job) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	if err := j.cancel(ctx); err != nil {
		fmt.Fprintf(w.streams.Err, "Interrupted; %s goes on, since it cannot be canceled: %v\n", j.what, err)
		return
	}
	fmt.Fprintf(w.streams.Err, "Interrupted; %s is being canceled.\n", j.what)
}

func (w follower) watchJob(ctx context.Context, j job, p *tty.Progress) (sdk.ProvisionerJob, error) {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	var last int64
	var lost time.Time // when the server was first found away; zero while it is there
	for {
		err := w.showLogs(ctx, j, p, &last, &lost)
		var job sdk.ProvisionerJob
		if err == nil {
			job, err = j.job(ctx)
		}
		if err == nil && job.Status.Ended() {
			return job, nil
		}
		if ctx.Err() != nil {
			return job, ctx.Err()
		}
		if err != nil && fault.CodeOf(err) != fault.Unavailable {
			return job, err
		}
		if err != nil {
			if lost.IsZero() {
				lost = time.Now()
			}
			if time.Since(lost) > awayLimit {
				return job, err
			}
			p.Note("the server is away; " + j.what + " goes on, waiting for news")
		}
		if err := retry.Wait(ctx); err != nil {
			return job, err
		}
	}
}

// showLogs prints the job's log lines after *last until the stream of them ends. While none has come it says why.
func (w follower) showLogs(ctx context.Context, j job, p *tty.Progress, last *int64, lost *time.Time) error {
	ctx, stop := context.WithCancel(ctx)
	first := *last == 0
	begun := make(chan struct{})
	var queue sync.WaitGroup
	if first {
		queue.Go(func() { w.showQueue(ctx, j, p, begun) })
	}
	defer queue.Wait()
	defer stop()
	for line, err := range j.logs(ctx, *last) {
		if err != nil {
			return err
		}
		if first {
			first = false
			close(begun)
		}
		*lost = time.Time{}
		*last = max(*last, line.ID)
		p.Stage(line.Stage)
		w.showLine(p, line)
	}
	return nil
}

// showLine prints one line of a job's log. Elsewhere than on a terminal, and where it is bad news, every line is shown.
func (w follower) showLine(p *tty.Progress, line sdk.JobLog) {
	s := w.streams
	switch {
	case line.Output == "":
	case line.Level == sdk.LogError:
		p.Line(s.Red(line.Output))
	case line.Level == sdk.LogDebug || line.Level == sdk.LogTrace:
		if w.verbose {
			p.Line(s.Dim(line.Output))
		}
	default:
		p.Line(s.Dim(line.Output))
	}
}

// showQueue says what a job that has not begun waits for, until it begins.
func (w follower) showQueue(ctx context.Context, j job, p *tty.Progress, begun <-chan struct{}) {
	tick := time.NewTicker(queueLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-begun:
			return
		case <-tick.C:
		}
		job, err := j.job(ctx)
		if err != nil {
			continue // the stream of logs, read at the same time, says what is wrong
		}
		if job.Status != sdk.JobPending {
			return
		}
		p.Stage("Queued")
		switch {
		case job.WaitingReason != "":
			p.Note(job.WaitingReason)
		case job.QueuePosition > 0:
			p.Note(fmt.Sprintf("position %d of %d", job.QueuePosition, job.QueueSize))
		}
	}
}

// followBuild shows a workspace build until it ends. A build that did not succeed is an error that says why and where its
// log is.
func (w follower) followBuild(ctx context.Context, ws sdk.Workspace, build sdk.WorkspaceBuild) error {
	what := "the " + string(build.Transition) + " of " + ws.FullName()
	hint := fmt.Sprintf("coder logs %s -n %d", ws.FullName(), build.BuildNumber)
	job, err := w.followJob(ctx, job{
		what: what,
		logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return w.client.FollowBuildLogs(ctx, build.ID, after)
		},
		job: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			b, err := w.client.Build(ctx, build.ID)
			return b.Job, err
		},
		cancel: func(ctx context.Context) error { return w.client.CancelBuild(ctx, build.ID) },
	})
	if err != nil {
		return err
	}
	return jobError(job, what, hint)
}

// jobError is nil for a job that succeeded.
func jobError(job sdk.ProvisionerJob, what, hint string) error {
	switch job.Status {
	case sdk.JobSucceeded:
		return nil
	case sdk.JobCanceled:
		return Try(fault.New(fault.Conflict, "%s was canceled", what), "%s", hint)
	}
	f := fault.New(fault.Conflict, "%s failed", what)
	if job.Error != "" {
		f.Detail = job.Error
	}
	return Try(f, "%s", hint)
}

// settle follows a build of the workspace that is still going on, whoever began it, and returns the workspace as it is
// then.
func (w follower) settle(ctx context.Context, ws sdk.Workspace) (sdk.Workspace, error) {
	if ws.LatestBuild.Job.Status.Ended() {
		return ws, nil
	}
	if err := w.waitBuild(ctx, ws); err != nil {
		return ws, err
	}
	return w.client.Workspace(ctx, ws.ID)
}

// waitBuild follows somebody else's build: it is not canceled with ctx, and its failure is not ours.
func (w follower) waitBuild(ctx context.Context, ws sdk.Workspace) error {
	id := ws.LatestBuild.ID
	p := w.streams.Progress()
	_, err := w.watchJob(ctx, job{
		what: "the build",
		logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return w.client.FollowBuildLogs(ctx, id, after)
		},
		job: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			b, err := w.client.Build(ctx, id)
			return b.Job, err
		},
	}, p)
	p.Stop(err == nil)
	return err
}
