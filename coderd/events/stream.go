package events

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/internal/sdk"
)

const (
	// maxPending bounds what waits for a slow reader. Beyond it the reader is told to look at everything.
	maxPending = 256
	// gap is the least time between two batches: what changes within it and more than once is told once.
	gap = 100 * time.Millisecond
	// pingEvery keeps proxies from taking a silent stream for a dead one.
	pingEvery = 15 * time.Second
	// sendTimeout bounds a batch to a reader that takes nothing.
	sendTimeout = 30 * time.Second
	// authenticateEvery bounds how long a stream outlives its session, when nobody took that away but time.
	authenticateEvery = 10 * time.Minute
)

// stream is one reader: what it has not been told yet.
type stream struct {
	user uuid.UUID
	wake notify.Wake

	mu      sync.Mutex
	actor   rbac.Actor          // guarded by mu
	pending []Change            // guarded by mu: in order, each once
	known   map[Change]struct{} // guarded by mu: what is in pending
	lost    bool                // guarded by mu: pending is empty and would not be complete
	doubted bool                // guarded by mu: who the reader is has to be asked again
}

func newStream(actor rbac.Actor) *stream {
	return &stream{user: actor.UserID, actor: actor, wake: notify.NewWake(), known: map[Change]struct{}{}}
}

// push adds a change that the reader may see.
func (x *stream) push(c Change) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.known[c]; ok || x.lost || x.actor.May(rbac.Read, rbac.Of(resources[c.Kind], c.Owner)) != nil {
		return
	}
	if len(x.pending) >= maxPending {
		x.loseLocked()
	} else {
		x.pending = append(x.pending, c)
		x.known[c] = struct{}{}
	}
	x.wake.Poke()
}

// reset has the reader look at everything.
func (x *stream) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loseLocked()
	x.wake.Poke()
}

func (x *stream) loseLocked() {
	x.pending, x.lost = nil, true
	clear(x.known)
}

// doubt has the reader's session asked for again before anything else is told.
func (x *stream) doubt() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubted = true
	x.wake.Poke()
}

// take empties the stream.
func (x *stream) take() (changes []Change, lost, doubted bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	changes, lost, doubted = x.pending, x.lost, x.doubted
	x.pending, x.lost, x.doubted = nil, false, false
	clear(x.known)
	return changes, lost, doubted
}

// become takes the reader's present rights, and reports whether they are others than before.
func (x *stream) become(actor rbac.Actor) (changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	changed = !slices.Equal(x.actor.Roles, actor.Roles)
	x.actor = actor
	return changed
}

// serve answers with server-sent events until the reader leaves, its session ends or the service stops.
func (s *Service) serve(w http.ResponseWriter, r *http.Request) error {
	x, err := s.add(httpapi.ActorFrom(r.Context()))
	if err != nil {
		return err
	}
	defer s.remove(x)
	w.Header().Set("Content-Type", "text/event-stream")
	httpapi.NoStore(w.Header())
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that collects answers would keep events back
	out := writer{w, http.NewResponseController(w)}
	// Whatever comes next on this connection has its own deadline.
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }()
	if err := s.follow(r, x, out); err != nil && r.Context().Err() == nil {
		s.deps.Logger.DebugContext(r.Context(), "event stream ended", "user", x.user, "err", err)
	}
	return nil // the answer has begun: an error can only end it
}

func (s *Service) follow(r *http.Request, x *stream, out writer) error {
	if err := out.send("event: ready\ndata: {}\n\n"); err != nil {
		return err
	}
	ping, check := time.NewTicker(pingEvery), time.NewTicker(authenticateEvery)
	defer ping.Stop()
	defer check.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-s.stopped:
			return nil
		case <-ping.C:
			if err := out.send(": ping\n\n"); err != nil {
				return err
			}
			continue
		case <-check.C:
			x.doubt()
			continue
		case <-x.wake:
		}
		changes, lost, doubted := x.take()
		if doubted {
			actor, err := s.deps.Authenticate(r)
			if err != nil {
				return fmt.Errorf("check session: %w", err) // if nobody can tell now, the page asks again soon
			}
			if x.become(actor) { // what it was about to be told is not its business any more, and other things are
				changes, lost = nil, true
			}
		}
		if err := out.send(text(changes, lost)); err != nil {
			return err
		}
		pause := time.NewTimer(gap)
		select {
		case <-pause.C:
		case <-r.Context().Done():
		case <-s.stopped:
		}
		pause.Stop()
	}
}

// text is a batch as server-sent events, "" when there is nothing to tell.
func text(changes []Change, lost bool) string {
	if lost {
		return "event: " + string(sdk.EventReset) + "\ndata: {}\n\n"
	}
	var all []byte
	for _, c := range changes {
		all = fmt.Appendf(all, "event: %s\ndata: {\"id\":%q}\n\n", c.Kind, c.ID)
	}
	return string(all)
}

// writer sends with a deadline.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w writer) send(text string) error {
	if text == "" {
		return nil
	}
	if err := w.control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := io.WriteString(w.ResponseWriter, text); err != nil {
		return fmt.Errorf("send events: %w", err)
	}
	return w.control.Flush()
}
