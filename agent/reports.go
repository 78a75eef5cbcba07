package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

// maxReports bounds the reports that wait for the server. The scripts of a workspace make far fewer in one build.
const maxReports = 1024

// report is one report for the server to store. Exactly one field is set.
type report struct {
	lifecycle *agentpb.LifecycleRequest
	script    *agentpb.ScriptDoneRequest
	health    *agentpb.AppHealthRequest
	stats     *agentpb.StatsRequest
	levels    *levels
}

// levels reports the states of all monitors.
type levels struct {
	req    *agentpb.MonitorsRequest
	stored func([]*agentpb.MonitorLevel) // receives what the server stored
}

// reports is a queue of reports. It sends them in order, and repeats each until the server has stored it.
type reports struct {
	wake notify.Wake

	mu    sync.Mutex // guards the fields below
	queue []report
	idle  notify.Broadcast // the queue is empty
}

func newReports() *reports { return &reports{wake: notify.NewWake()} }

// add queues a report. If too many wait it drops the oldest.
func (r *reports) add(rep report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rep.stats != nil || rep.levels != nil { // only the latest counts
		r.queue = slices.DeleteFunc(r.queue, func(old report) bool {
			return rep.stats != nil && old.stats != nil || rep.levels != nil && old.levels != nil
		})
	}
	if len(r.queue) == maxReports {
		r.queue = r.queue[1:]
	}
	r.queue = append(r.queue, rep)
	r.wake.Poke()
}

// run sends reports until ctx ends or a call fails with a temporary error.
func (r *reports) run(ctx context.Context, client agentpbconnect.AgentServiceClient, log *slog.Logger) error {
	for {
		next, ok := r.first()
		if !ok {
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := next.send(ctx, client)
		switch connect.CodeOf(err) {
		case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodePermissionDenied, connect.CodeUnimplemented:
			log.Warn("report refused", "err", err)
			err = nil // it will never be stored
		}
		if err != nil {
			return fmt.Errorf("send report: %w", err)
		}
		r.done(next)
	}
}

func (rep report) send(ctx context.Context, client agentpbconnect.AgentServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var err error
	switch {
	case rep.lifecycle != nil:
		_, err = client.Lifecycle(ctx, connect.NewRequest(rep.lifecycle))
	case rep.script != nil:
		_, err = client.ScriptDone(ctx, connect.NewRequest(rep.script))
	case rep.health != nil:
		_, err = client.AppHealth(ctx, connect.NewRequest(rep.health))
	case rep.levels != nil:
		var answer *connect.Response[agentpb.MonitorsResponse]
		if answer, err = client.Monitors(ctx, connect.NewRequest(rep.levels.req)); err == nil {
			rep.levels.stored(answer.Msg.GetLevels())
		}
	default:
		_, err = client.Stats(ctx, connect.NewRequest(rep.stats))
	}
	return err
}

func (r *reports) first() (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 {
		return r.queue[0], true
	}
	r.idle.Notify()
	return report{}, false
}

// done removes a report, unless add has dropped it.
func (r *reports) done(rep report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) > 0 && r.queue[0] == rep {
		r.queue = r.queue[1:]
	}
}

// flush blocks until everything is stored or ctx ends.
func (r *reports) flush(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle.Changed()
	r.wake.Poke()
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush reports: %w", ctx.Err())
	}
}
