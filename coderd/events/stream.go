package events

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxPending limits pending changes of a slow reader. Beyond it, the reader must reload everything.
	maxPending = 256
	// gap is the minimum time between two batches: repeated changes within it are reported once.
	gap = 100 * time.Millisecond
	// pingEvery keeps proxies from mistaking a silent stream for a dead one.
	pingEvery = 15 * time.Second
	// authenticateEvery bounds how long a stream outlives an expired session. A revoked session ends its stream
	// immediately.
	authenticateEvery = 10 * time.Minute
)

// stream is one reader with its pending changes.
type stream struct {
	user uuid.UUID
	wake notify.Wake

	mu         sync.Mutex
	actor      rbac.Actor          // guarded by mu
	pending    []Change            // guarded by mu: in order, each once
	queued     map[Change]struct{} // guarded by mu: what is in pending
	lost       bool                // guarded by mu: changes were dropped, and pending is empty
	recheckDue bool                // guarded by mu: the reader must be authenticated again
}

func newStream(actor rbac.Actor) *stream {
	return &stream{user: actor.UserID, actor: actor, wake: notify.NewWake(), queued: map[Change]struct{}{}}
}

// push adds a change that the reader may see.
func (x *stream) push(c Change, object rbac.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.Kind == sdk.EventInbox && c.Owner != x.user { // no role gives access to another user's inbox
		return
	}
	if _, ok := x.queued[c]; ok || x.lost || x.actor.May(rbac.Read, object) != nil {
		return
	}
	if len(x.pending) >= maxPending {
		x.loseLocked()
	} else {
		x.pending = append(x.pending, c)
		x.queued[c] = struct{}{}
	}
	x.wake.Poke()
}

// reset makes the reader reload everything.
func (x *stream) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loseLocked()
	x.wake.Poke()
}

func (x *stream) loseLocked() {
	x.pending, x.lost = nil, true
	clear(x.queued)
}

// recheck schedules a check of the reader's session before the next event.
func (x *stream) recheck() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recheckDue = true
	x.wake.Poke()
}

// take returns the pending state and clears it.
func (x *stream) take() (changes []Change, lost, recheck bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	changes, lost, recheck = x.pending, x.lost, x.recheckDue
	x.pending, x.lost, x.recheckDue = nil, false, false
	clear(x.queued)
	return changes, lost, recheck
}

// become replaces the reader's rights with the current ones, and reports whether they changed.
func (x *stream) become(actor rbac.Actor) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	changed = !x.actor.Equal(actor)
	x.actor = actor
	return changed
}

// serve answers with server-sent events until the reader leaves, its session ends or the service stops.
func (s *Service) serve(w http.ResponseWriter, r *http.Request) error {
	x, err := s.add(httpapi.ActorFrom(r.Context()).Current()) // its rights are checked again here
	if err != nil {
		return err
	}
	defer s.remove(x)
	stream := httpapi.StreamOptions{Life: s.life, Logger: s.opts.Logger, Failed: "changes cannot be followed now"}
	return httpapi.ServeEvents(w, r, stream, func(ctx context.Context, send func(...httpapi.Event) error) error {
		return s.follow(ctx, r, x, send)
	})
}

func (s *Service) follow(ctx context.Context, r *http.Request, x *stream, send func(...httpapi.Event) error) error {
	if err := send(httpapi.Event{Type: "ready", Data: struct{}{}}); err != nil {
		return err
	}
	ping, check := time.NewTicker(pingEvery), time.NewTicker(authenticateEvery)
	defer ping.Stop()
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ping.C:
			if err := send(httpapi.Event{}); err != nil {
				return err
			}
			continue
		case <-check.C:
			x.recheck()
			continue
		case <-x.wake:
		}
		changes, lost, recheck := x.take()
		if recheck {
			actor, err := s.opts.Authenticate(r)
			if err != nil {
				return fmt.Errorf("check session: %w", err) // if this is only temporary, the page reconnects soon
			}
			if x.become(actor) { // the reader may no longer see pending changes, and may see other objects instead
				changes, lost = nil, true
			}
		}
		if all := batch(changes, lost); len(all) > 0 {
			if err := send(all...); err != nil {
				return err
			}
		}
		pause := time.NewTimer(gap)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// batch returns the events for changes, or one event that some were lost.
func batch(changes []Change, lost bool) []httpapi.Event {
	if lost {
		return []httpapi.Event{{Type: string(sdk.EventReset), Data: struct{}{}}}
	}
	all := make([]httpapi.Event, len(changes))
	for i, c := range changes {
		all[i] = httpapi.Event{Type: string(c.Kind), Data: sdk.Event{ID: c.ID}}
	}
	return all
}
