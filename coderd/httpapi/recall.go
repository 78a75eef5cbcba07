package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	// recallFor is how long after its last use with the database a token may read what DuringOutage declares while the
	// database does not answer. It bounds what a token is still good for whose revocation this server could not learn
	// of.
	recallFor = 15 * time.Minute
	// recallAfter is how long such a request waits for the database.
	recallAfter = 3 * time.Second
	// maxRecalled bounds the tokens that a server remembers. Only tokens of users who may read such a route are
	// remembered.
	maxRecalled = 256
)

// DuringOutage declares that a route tells about the server and is answered while the database does not answer: to
// tokens that this server has lately seen, by what their users were allowed then. See Sessions.
func DuringOutage() RouteOption { return func(r *Route) { r.DuringOutage = true } }

// fingerprint is the SHA-256 of a session token.
type fingerprint [sha256.Size]byte

func fingerprintOf(token secret.Token) fingerprint { return sha256.Sum256([]byte(token.Reveal())) }

// recollection is a token's user as the database described them.
type recollection struct {
	actor rbac.Actor
	seen  time.Time
}

// remember keeps the user of a token that was checked in the given generation. A Recheck since then may have been about
// it.
func (s *Sessions) remember(token secret.Token, actor rbac.Actor, generation uint64) {
	if s == nil || actor.KeyID == "" {
		return
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation {
		return
	}
	key := fingerprintOf(token)
	if _, known := s.recalled[key]; !known && len(s.recalled) >= maxRecalled {
		s.dropOldest()
	}
	s.recalled[key] = recollection{actor, now}
}

// dropOldest makes room for a token. s.mu is held.
func (s *Sessions) dropOldest() {
	var oldest fingerprint
	var seen time.Time
	for key, r := range s.recalled {
		if seen.IsZero() || r.seen.Before(seen) {
			oldest, seen = key, r.seen
		}
	}
	delete(s.recalled, oldest)
}

// recall returns the user of a token that was remembered lately.
func (s *Sessions) recall(token secret.Token) (rbac.Actor, bool) {
	if s == nil {
		return rbac.Actor{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fingerprintOf(token)
	r, ok := s.recalled[key]
	if ok && time.Since(r.seen) >= recallFor {
		delete(s.recalled, key)
		ok = false
	}
	return r.actor, ok
}

// forgetToken drops a token that turned out to be over.
func (s *Sessions) forgetToken(token secret.Token) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recalled, fingerprintOf(token))
}

// forget drops a user's tokens; uuid.Nil means all users'. s.mu is held.
func (s *Sessions) forget(user uuid.UUID) {
	for key, r := range s.recalled {
		if user == uuid.Nil || r.actor.UserID == user {
			delete(s.recalled, key)
		}
	}
}

// signIn returns the sender of a request. While the database does not answer, it recalls the sender if the route allows
// that.
func (m *Mux) signIn(r *http.Request, route Route, generation uint64) (rbac.Actor, error) {
	token, _ := credential.Of(r)
	ctx := r.Context()
	if route.DuringOutage {
		if _, known := m.sessions.recall(token); known {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, recallAfter)
			defer cancel()
		}
	}
	actor, err := m.authenticate(r.WithContext(ctx))
	if err == nil {
		if m.readsDuringOutage(actor) {
			m.sessions.remember(token, actor, generation)
		}
		return actor, nil
	}
	silent := r.Context().Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	if route.DuringOutage && (silent || databaseAway(err)) {
		if known, ok := m.sessions.recall(token); ok {
			return known, nil
		}
	}
	if fault.CodeOf(err) == fault.Unauthenticated {
		m.sessions.forgetToken(token)
	}
	if databaseAway(err) {
		f := *fault.As(err)
		f.Unchanged = true // no handler has run
		return actor, &f
	}
	return actor, err
}

// readsDuringOutage reports whether the actor may read a route that is answered during an outage of the database.
func (m *Mux) readsDuringOutage(actor rbac.Actor) bool {
	return slices.ContainsFunc(m.duringOutage, func(p rbac.Permission) bool { return p.Check(actor) == nil })
}

func databaseAway(err error) bool {
	f := fault.As(err)
	return f != nil && f.Reason == fault.DatabaseUnreachable
}
