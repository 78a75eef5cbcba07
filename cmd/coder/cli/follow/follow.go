// Package follow shows the progress of builds and imports, from their queue to their end. It knows neither the mesh nor
// the global flags.
package follow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

const (
	// queueLook is the interval between two checks of a queued job.
	queueLook = time.Second
	// awayLimit is how long a server may be unreachable before the follower gives up. Builds survive that long.
	awayLimit = 10 * time.Minute
	// openAfter is longer than any attempt to open a stream takes: one that lasts longer was open.
	openAfter = time.Minute
	// cancelTimeout bounds the request that cancels a job after an interrupt.
	cancelTimeout = 10 * time.Second
)

// Follower shows the progress of builds and imports.
type Follower struct {
	Client  *sdk.Client
	Streams *tty.Streams
	Verbose bool // show debug lines
}

// Job describes how to follow one job.
type Job struct {
	What   string // as shown to users: "the build"
	Logs   func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error]
	Get    func(context.Context) (sdk.ProvisionerJob, error)
	Cancel func(context.Context) error
}

// Job shows a job's log, stage by stage, until the job ends, and returns the ended job. It waits while the server is
// unreachable. Canceling ctx cancels the job.
func (w Follower) Job(ctx context.Context, j Job) (sdk.ProvisionerJob, error) {
	p := w.Streams.Progress()
	job, err := w.watchJob(ctx, j, p)
	p.Stop(err == nil && job.Status == sdk.JobSucceeded)
	if errors.Is(err, context.Canceled) {
		w.cancelJob(ctx, j)
	}
	return job, err
}

// cancelJob asks the server to cancel a job that the user has interrupted.
func (w Follower) cancelJob(ctx context.Context, j Job) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	if err := j.Cancel(ctx); err != nil {
		fmt.Fprintf(w.Streams.Err, "Interrupted. Cannot cancel %s, which continues: %v\n", j.What, err)
		return
	}
	fmt.Fprintf(w.Streams.Err, "Interrupted. Canceling %s.\n", j.What)
}

func (w Follower) watchJob(ctx context.Context, j Job, p *tty.Progress) (sdk.ProvisionerJob, error) {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	var last int64
	var lost time.Time // when the server became unreachable; zero while it answers
	for {
		began := time.Now()
		err := w.showLogs(ctx, j, p, &last, &lost)
		if err == nil || time.Since(began) > openAfter {
			lost = time.Time{} // the server has answered since, however little the job wrote
		}
		var job sdk.ProvisionerJob
		if err == nil {
			job, err = j.Get(ctx)
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
				return job, fault.New(fault.Unavailable, "the server was unreachable for more than %s: %w", awayLimit,
					err).WithDetail("What it was to do may go on meanwhile: look once the server answers.")
			}
			away := "the server"
			if fault.As(err).Reason == fault.DatabaseUnreachable {
				away = "the server's database"
			}
			p.Note(away + " is unreachable; " + j.What + " continues, waiting for " + away)
		}
		if err := retry.Wait(ctx); err != nil {
			return job, err
		}
	}
}

// showLogs prints the job's log lines after *last until their stream ends. Before the first line it shows why the job
// waits.
func (w Follower) showLogs(ctx context.Context, j Job, p *tty.Progress, last *int64, lost *time.Time) error {
	ctx, stop := context.WithCancel(ctx)
	first := *last == 0
	begun := make(chan struct{})
	var queue sync.WaitGroup
	if first {
		queue.Go(func() { w.showQueue(ctx, j, p, begun) })
	}
	defer queue.Wait()
	defer stop()
	for line, err := range j.Logs(ctx, *last) {
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

// showLine prints one line of a job's log. Debug lines are shown with --verbose only.
func (w Follower) showLine(p *tty.Progress, line sdk.JobLog) {
	s := w.Streams
	switch {
	case line.Output == "":
	case line.Level == sdk.LogError:
		p.Line(s.Red(line.Output))
	case line.Level == sdk.LogDebug || line.Level == sdk.LogTrace:
		if w.Verbose {
			p.Line(s.Dim(line.Output))
		}
	default:
		p.Line(s.Dim(line.Output))
	}
}

// showQueue shows what a queued job waits for, until it begins.
func (w Follower) showQueue(ctx context.Context, j Job, p *tty.Progress, begun <-chan struct{}) {
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
		job, err := j.Get(ctx)
		if err != nil {
			continue // the concurrent stream of logs reports the error
		}
		if job.Status != sdk.JobPending {
			return
		}
		p.Stage("Queued")
		switch {
		case job.WaitingReason != "":
			p.Note(job.Waiting())
		case job.QueuePosition > 0:
			p.Note(fmt.Sprintf("position %d of %d", job.QueuePosition, job.QueueSize))
		}
	}
}

// Build shows a workspace build until it ends. The error of a failed build reports why it failed and where its log is.
func (w Follower) Build(ctx context.Context, ws sdk.Workspace, build sdk.WorkspaceBuild) error {
	what := "the " + string(build.Transition) + " of " + ws.FullName()
	client := w.Client.AtOnce() // watchJob waits, and shows that
	hint := fmt.Sprintf("coder logs %s -n %d", shell.Word(ws.FullName()), build.BuildNumber)
	job, err := w.Job(ctx, Job{
		What: what,
		Logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return client.FollowBuildLogs(ctx, build.ID, after)
		},
		Get: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			b, err := client.Build(ctx, build.ID)
			return b.Job, err
		},
		Cancel: func(ctx context.Context) error { return w.Client.CancelBuild(ctx, build.ID) },
	})
	if err != nil {
		return err
	}
	return JobError(job, what, hint)
}

// JobError returns the error of a job, or nil if the job succeeded.
func JobError(job sdk.ProvisionerJob, what, hint string) error {
	switch job.Status {
	case sdk.JobSucceeded:
		return nil
	case sdk.JobCanceled:
		return exit.Try(fault.New(fault.Conflict, "%s was canceled", what), "%s", hint)
	}
	f := fault.New(fault.Conflict, "%s failed", what)
	if job.Error != "" {
		f.Detail = job.Error
	}
	return exit.Try(f, "%s", hint)
}

// Settle waits until the workspace's current build has ended, no matter who started it, and returns the workspace
// afterwards.
func (w Follower) Settle(ctx context.Context, ws sdk.Workspace) (sdk.Workspace, error) {
	if ws.LatestBuild.Job.Status.Ended() {
		return ws, nil
	}
	if err := w.waitBuild(ctx, ws); err != nil {
		return ws, err
	}
	return w.Client.Workspace(ctx, ws.ID)
}

// waitBuild follows a build that this program did not start: ctx does not cancel it, and its failure is not an error.
func (w Follower) waitBuild(ctx context.Context, ws sdk.Workspace) error {
	id, client := ws.LatestBuild.ID, w.Client.AtOnce()
	fmt.Fprintf(w.Streams.Err, "Waiting for the %s of %s to end first (build %d).\n", ws.LatestBuild.Transition,
		ws.FullName(), ws.LatestBuild.BuildNumber)
	p := w.Streams.Progress()
	_, err := w.watchJob(ctx, Job{
		What: "the build",
		Logs: func(ctx context.Context, after int64) iter.Seq2[sdk.JobLog, error] {
			return client.FollowBuildLogs(ctx, id, after)
		},
		Get: func(ctx context.Context) (sdk.ProvisionerJob, error) {
			b, err := client.Build(ctx, id)
			return b.Job, err
		},
	}, p)
	p.Stop(err == nil)
	return err
}
