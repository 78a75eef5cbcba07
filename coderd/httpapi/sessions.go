package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// politeTime is how long a handler may take to end an answer whose session has ended. After that its connection is cut.
const politeTime = 2 * time.Second

// Sessions tracks which requests are being served for which session, and ends them with it: mainly websockets and event
// streams, each of which is one request for as long as it is open. It also remembers, for a quarter of an hour and in
// memory only, tokens that may read about the server, by their hashes: while the database does not answer, nothing else
// says who asks (see DuringOutage). A revocation that this server learns of ends that at once. Safe for concurrent use.
type Sessions struct {
	log *slog.Logger
	ask func(ctx context.Context, id string, userID uuid.UUID) (rbac.Actor, error)

	mu         sync.Mutex
	generation uint64                       // guarded by mu: grows with every Recheck
	open       map[*served]struct{}         // guarded by mu
	recalled   map[fingerprint]recollection // guarded by mu: at most maxRecalled
}

// served is a request that is being served.
type served struct {
	actor  rbac.Actor      // with the rights that it began with
	needs  rbac.Permission // of its route
	ledger *rbac.Ledger    // what it used of them
	end    context.CancelCauseFunc
	cut    func() // ends its connection, if its handler has not returned

	mu     sync.Mutex
	guards []Guard // guarded by mu
}

// Guard returns a fault if an actor with these rights may not go on with a request.
type Guard func(context.Context, rbac.Actor) error

type servedKey struct{}

// AddGuard has guard asked whenever rights change, until the request is answered: a stream that shows a workspace ends
// when the workspace is no longer shared with its viewer. Call it before the request's own check: a change between the
// two is then seen by either. The guard must read what it judges from the database, and may be called while the request
// is served.
func AddGuard(ctx context.Context, guard Guard) {
	if x, ok := ctx.Value(servedKey{}).(*served); ok {
		x.mu.Lock()
		x.guards = append(x.guards, guard)
		x.mu.Unlock()
	}
}

// refusal returns why a request must end, for an actor who may have had other rights when it began: it used a right
// that the actor has lost. Rights that it has not used do not count, and its later checks follow those of now. Errors
// that are no refusals mean that this is not known.
func (x *served) refusal(ctx context.Context, actor rbac.Actor) error {
	if kept := x.ledger.Become(x.actor, actor); !kept || x.needs.Check(actor) != nil {
		return fault.New(fault.Forbidden, "Your roles have changed.").WithDetail("Try again with your new roles.")
	}
	x.mu.Lock()
	guards := slices.Clone(x.guards)
	x.mu.Unlock()
	for _, guard := range guards {
		if err := guard(ctx, actor); err != nil {
			return err
		}
	}
	return nil
}

// isRefusal reports whether an error says that a request may not be made, rather than that this is not known.
func isRefusal(err error) bool {
	code := fault.CodeOf(err)
	return code == fault.Unauthenticated || code == fault.Forbidden || code == fault.NotFound
}

// NewSessions returns a registry. ask returns a session's user with their current rights, by the session's id; its
// fault is Unauthenticated if the session has ended.
func NewSessions(
	log *slog.Logger, ask func(ctx context.Context, id string, userID uuid.UUID) (rbac.Actor, error),
) *Sessions {
	return &Sessions{log: log, ask: ask, open: make(map[*served]struct{}), recalled: make(map[fingerprint]recollection)}
}

// now returns the generation to authenticate at. A nil registry has none.
func (s *Sessions) now() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// enter registers a request whose session was checked in the given generation. The returned context ends with the
// session, and has the actor, whose checks are kept; the caller must call leave. The session may have ended between the
// check and the registration, so enter checks it again if there was a Recheck in between.
func (s *Sessions) enter(
	ctx context.Context, w *response, generation uint64, actor rbac.Actor, needs rbac.Permission,
) (_ context.Context, leave func(), err error) {
	if s == nil || actor.KeyID == "" {
		return ctx, func() {}, nil
	}
	ctx, end := context.WithCancelCause(ctx)
	x := &served{actor: actor, needs: needs, ledger: new(rbac.Ledger), end: end, cut: w.cut}
	s.mu.Lock()
	s.open[x] = struct{}{}
	changed := s.generation != generation
	s.mu.Unlock()
	ctx = context.WithValue(context.WithValue(ctx, servedKey{}, x), actorKey{}, actor.Keeping(x.ledger))
	leave = func() {
		s.mu.Lock()
		delete(s.open, x)
		s.mu.Unlock()
		w.leave()
		end(nil)
	}
	if changed {
		now, err := s.ask(ctx, actor.KeyID, actor.UserID)
		if err == nil {
			err = x.refusal(ctx, now)
		}
		if err != nil {
			leave()
			return nil, nil, err
		}
	}
	return ctx, leave, nil
}

// Recheck ends the requests of those of the user's sessions that have ended or lost a right that the request needs;
// uuid.Nil means all users. It blocks for one query per session with something open, and for the guards of its
// requests. An error names sessions that could not be checked: their requests continue, so try again.
func (s *Sessions) Recheck(ctx context.Context, userID uuid.UUID) error {
	s.mu.Lock()
	s.generation++
	s.forget(userID)
	bySession := make(map[string][]*served)
	for x := range s.open {
		if userID == uuid.Nil || x.actor.UserID == userID {
			bySession[x.actor.KeyID] = append(bySession[x.actor.KeyID], x)
		}
	}
	s.mu.Unlock()
	var errs []error
	for id, all := range bySession {
		actor, err := s.ask(ctx, id, all[0].actor.UserID)
		if err != nil && !isRefusal(err) {
			errs = append(errs, err)
			continue
		}
		for _, x := range all {
			why := err
			if why == nil {
				why = x.refusal(ctx, actor)
			}
			switch {
			case why == nil:
			case isRefusal(why):
				s.finish(x, fault.As(why))
			default:
				errs = append(errs, why)
			}
		}
	}
	return errors.Join(errs...)
}

// finish ends a request, gracefully at first.
func (s *Sessions) finish(x *served, reason *fault.Error) {
	s.log.Debug("request ended with its session", "user", x.actor.Username, "reason", reason.Message)
	x.end(reason)
	time.AfterFunc(politeTime, x.cut)
}

// SessionEnded returns why the session of the request with this context ended during the request, or nil if it did not.
func SessionEnded(ctx context.Context) *fault.Error {
	if ctx.Err() == nil {
		return nil
	}
	return fault.As(context.Cause(ctx))
}

// leave keeps cut from having an effect: the handler is returning, and HTTP/2's response writer panics after that.
func (w *response) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
}

// cut closes the connection that carries the answer.
func (w *response) cut() {
	w.mu.Lock()
	conn, left := w.conn, w.left
	if conn == nil && !left {
		control := http.NewResponseController(w.ResponseWriter)
		// Only a connection in a test lacks deadlines.
		_ = control.SetWriteDeadline(time.Now())
		_ = control.SetReadDeadline(time.Now())
	}
	w.mu.Unlock()
	if conn != nil && !left {
		conn.Close() // without the lock, because closing a TLS connection may block
	}
}
