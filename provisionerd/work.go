package provisionerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/internal/disk"
	"github.com/codermesh/codermesh/v2/internal/tracing"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

const (
	// recoverTime bounds how long the executor may take to recover one killed job.
	recoverTime = 2 * time.Minute
	// fenceForce is how long a job may take to end gracefully when its lease may be about to go to another daemon. The
	// server waits a little longer than this before it reassigns the job.
	fenceForce = 20 * time.Second
)

// work runs a job to its end and frees its slot.
func (d *Daemon) work(l *lease) {
	began := time.Now()
	l.log.Info("job started")
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	ctx, span := tracing.Tracer(d.opts.Tracer).Start(tracing.Continue(ctx, l.offer.GetTraceParent()),
		"job "+kindOf(l.offer), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("codermesh.job", l.key.job.String()),
			attribute.String("codermesh.peer", d.opts.Name)))
	over := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { l.batch(over) })
	helpers.Go(func() { l.escalate(over, d.opts.StopGrace, cancel) })
	// The first event marks the job as begun: a lease without events has not begun.
	l.Log(ownLine(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Setting up",
		fmt.Sprintf("Provisioner %s runs this job with %s.", cmp.Or(d.opts.Name, "without a name"),
			d.opts.Executor.Name())))
	l.flush()
	result := d.execute(ctx, l)
	close(over)
	helpers.Wait()

	l.mu.Lock()
	canceled, why, dropped := l.canceled, l.why, l.dropped
	l.mu.Unlock()
	if result.GetError() != "" {
		if why != "" {
			result.Error, result.Canceled = why, false
		} else if canceled {
			result.Canceled = true
		}
	}
	l.finish(result)
	tracing.End(span, result.GetError() != "")
	d.metrics.ended(l.offer, result, time.Since(began), dropped)
	l.log.Info("job ended", "duration", time.Since(began), "failed", result.GetError() != "", "canceled",
		result.GetCanceled(), "dropped_lines", dropped)
	d.release(l)
}

// execute calls the executor's Run. A panic there fails the job, not the daemon.
func (d *Daemon) execute(ctx context.Context, l *lease) (result *provisionerpb.Result) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("executor panicked", "err", p, "stack", string(debug.Stack()))
			result = &provisionerpb.Result{Error: fmt.Sprintf("The provisioner failed with an internal error: %v", p)}
		}
	}()
	select {
	case <-l.stop: // before it began
		return &provisionerpb.Result{Error: "The job was stopped before it began."}
	default:
	}
	if err := d.fetchState(ctx, l); err != nil {
		return &provisionerpb.Result{Error: disk.Explain(err, provisionersDisk, d.store.dir).Error()}
	}
	result = d.opts.Executor.Run(ctx, l.stop, job.Run{Offer: l.offer, Slot: l.slot, Source: d.source(l), Sink: l})
	if result == nil {
		return &provisionerpb.Result{Error: "The executor returned no result."}
	}
	return result
}

// batch journals log lines once the first has waited for batchDelay.
func (l *lease) batch(over <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-l.dirty:
		}
		timer.Reset(batchDelay)
		select {
		case <-over: // finish journals the rest
			return
		case <-timer.C:
			l.flush()
		}
	}
}

// escalate ends a job at once if it was asked to, or if it takes longer than grace to end gracefully.
func (l *lease) escalate(over <-chan struct{}, grace time.Duration, cancel context.CancelFunc) {
	select {
	case <-over:
		return
	case <-l.force:
		cancel()
		return
	case <-l.stop:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-over:
	case <-l.force:
		cancel()
	case <-timer.C:
		l.log.Warn("job did not end in time, killing it", "duration", grace)
		cancel()
	}
}

// recoverJournals recovers what an earlier process of this daemon left: it delivers finished jobs, and ends unfinished
// ones as failed, with the remaining state.
func (d *Daemon) recoverJournals() error {
	keys, err := d.store.keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		file, found, err := openJournal(d.store.path(key))
		if err != nil {
			// Even the offer is incomplete: its Accept was not sent.
			d.log.Warn("cannot read journal, removing it", "job", key.job, "err", err)
			if err := d.store.remove(key); err != nil {
				return err
			}
			continue
		}
		l := newLease(key, found.offer, file, d.log, d.wake.Poke)
		l.pieceBytes = d.opts.PieceBytes
		l.records, l.last, l.finished, l.started = found.records, found.last(), found.finished, true
		if !found.finished {
			kept, err := d.recoverJob(l, found)
			if err != nil {
				return errors.Join(err, file.close())
			}
			if !kept {
				if err := d.discard(l); err != nil {
					return err
				}
				continue
			}
		}
		d.mu.Lock()
		d.leases[key] = l
		d.order = append(d.order, l)
		d.mu.Unlock()
	}
	return nil
}

// recoverJob writes the end of a killed job into its journal. kept is false if the job had not begun: the server
// receives nothing from it and gives it to another daemon.
func (d *Daemon) recoverJob(l *lease, found *contents) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, recoverTime)
	defer cancel()
	checkpoint, cerr := l.disk.checkpoint(found)
	left, err := d.opts.Executor.Recover(ctx, l.key.job, l.key.epoch,
		job.Known{Checkpoint: checkpoint, Changes: found.changes})
	if d.ctx.Err() != nil {
		return false, d.ctx.Err() // stopping: the next start does it
	}
	err = errors.Join(cerr, err)
	if err != nil {
		l.log.Error("cannot recover killed job, its last checkpoint stays", "err", err)
	}
	state := left.State
	if state == nil {
		state = checkpoint
	}
	if state == nil && err == nil && len(found.records) == 0 {
		return false, nil
	}
	result := &provisionerpb.Result{Error: fmt.Sprintf("The provisioner was killed while it was %s. The last written "+
		"state is kept, and the next build continues from it.", doing(found.offer))}
	if found.offer.GetWorkspaceBuild() != nil {
		if sentence := (tfstate.Outcome{Unknown: left.Unknown, Tainted: left.Tainted}).Sentence(); sentence != "" {
			result.Error += " " + sentence
		}
		result.Of = &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
			State: state, InFlight: strings.Join(slices.Concat(left.Unknown, left.Tainted), ", "),
			Unknown: left.Unknown, Tainted: left.Tainted,
		}}
	}
	if err := l.appendTail(result); err != nil {
		return false, fmt.Errorf("journal the end of a killed job: %w", err)
	}
	l.finished = true
	l.log.Warn("recovered job of a killed provisioner", "state_bytes", len(state), "unknown", len(left.Unknown),
		"tainted", len(left.Tainted))
	return true, nil
}

// appendTail writes the result of a recovered job without numbers, which follow once the server has reported how many
// events it has.
func (l *lease) appendTail(result *provisionerpb.Result) error {
	write := func(event *provisionerpb.Event, sync bool) error {
		event.JobId, event.Epoch = l.key.job[:], l.key.epoch
		at, err := l.disk.append(kindEvent, event, sync)
		if err == nil {
			l.records = append(l.records, at)
		}
		return err
	}
	err := pieces(takeOut(result, l.pieceBytes), l.pieceBytes,
		func(event *provisionerpb.Event) error { return write(event, false) })
	if err != nil {
		return err
	}
	return write(&provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: sendable(result)}}, true)
}

// doing describes a job for users.
func doing(offer *provisionerpb.Offer) string {
	switch j := offer.GetJob().(type) {
	case *provisionerpb.Offer_TemplateImport:
		return "importing the template"
	case *provisionerpb.Offer_TemplateDryRun:
		if j.TemplateDryRun.GetExisting() != nil {
			return "planning the update"
		}
		return "running the template dry"
	case *provisionerpb.Offer_WorkspaceBuild:
		switch j.WorkspaceBuild.GetTransition() {
		case provisionerpb.Transition_TRANSITION_START:
			return "starting the workspace"
		case provisionerpb.Transition_TRANSITION_STOP:
			return "stopping the workspace"
		case provisionerpb.Transition_TRANSITION_DELETE:
			return "deleting the workspace"
		}
	}
	return "working on the job"
}

// forJournal returns an offer without what recovery does not need: values, secrets and the state before the job.
func forJournal(offer *provisionerpb.Offer) *provisionerpb.Offer {
	out := &provisionerpb.Offer{JobId: offer.GetJobId(), Epoch: offer.GetEpoch(), FileId: offer.GetFileId(),
		SourceSha256: offer.GetSourceSha256()}
	switch j := offer.GetJob().(type) {
	case *provisionerpb.Offer_TemplateImport:
		out.Job = &provisionerpb.Offer_TemplateImport{TemplateImport: &provisionerpb.TemplateImport{}}
	case *provisionerpb.Offer_TemplateDryRun:
		work := &provisionerpb.TemplateDryRun{}
		if j.TemplateDryRun.GetExisting() != nil {
			work.Existing = &provisionerpb.Existing{}
		}
		out.Job = &provisionerpb.Offer_TemplateDryRun{TemplateDryRun: work}
	case *provisionerpb.Offer_WorkspaceBuild:
		out.Job = &provisionerpb.Offer_WorkspaceBuild{WorkspaceBuild: &provisionerpb.WorkspaceBuild{Transition: j.WorkspaceBuild.GetTransition()}}
	}
	return proto.CloneOf(out)
}
