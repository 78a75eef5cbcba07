package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxRechecks bounds how often the server asks the Authorizer again for one answer because permissions changed while it
// answered.
const maxRechecks = 5

// subscribe makes x's peer want id, if the Authorizer agrees. An error is a fault: the client broke the protocol.
// An implied subscription is one that the client did not ask for: subscribe refuses it silently.
func (s *Server) subscribe(x *session, id uuid.UUID, implied bool) error {
	if id == x.principal.ID {
		return fault.New(fault.Invalid, "a node does not subscribe to itself")
	}
	for range maxRechecks {
		s.mu.Lock()
		target, gen := Target{ID: id}, s.authGen
		if o := s.peers[id]; o != nil && o.state != absent {
			target.Kind = o.principal.Kind
		}
		t := x.peer.tunnels[id]
		done := x.peer.session != x || (t != nil && *t.wantedBy(x.peer))
		full := x.peer.wants >= s.opts.MaxSubscriptions && x.principal.Kind != protocol.KindServer
		s.mu.Unlock()
		if done {
			return nil
		}
		err := errFull
		if !full {
			err = s.maySee(x.ctx, x.principal, target)
			if err != nil && !implied && s.opts.Refused != nil {
				s.opts.Refused(x.principal, id, err)
			}
		}

		s.mu.Lock()
		switch {
		case x.peer.session != x:
			s.mu.Unlock()
			return nil
		case err == nil && s.authGen != gen:
			s.mu.Unlock()
			continue
		case err == nil:
			err = s.linkAllowed(x.peer, id)
		}
		if err != nil && !implied {
			x.peer.refuse(id, err)
		}
		s.mu.Unlock()
		if err != nil {
			s.counters.refused.Add(1)
			s.log.Debug("subscription refused", "peer", x.principal.ID, "node", id, "err", err)
		}
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.peer.refuse(id, fault.New(fault.Unavailable, "permissions are changing too fast to decide"))
	return nil
}

var errFull = fault.New(fault.RateLimited, "too many subscriptions")

// linkAllowed links unless the kinds forbid it. Called with mu held.
func (s *Server) linkAllowed(p *peer, id uuid.UUID) *fault.Error {
	to := s.table.peer(id)
	if to.state != absent && !p.mayInitiate(to) {
		return errUnseen()
	}
	s.link(p, to)
	return nil
}

// maySee asks the Authorizer. An error that is not a fault becomes fault.Internal, whose cause only the log shows.
func (s *Server) maySee(ctx context.Context, from Principal, to Target) *fault.Error {
	if s.opts.Authorizer == nil {
		return fault.New(fault.Forbidden, "this server allows no introductions")
	}
	kinds := to.Kind == "" || from.Kind.MayInitiate(to.Kind)
	if !kinds {
		to.Kind = "" // a refusal must not reveal that it exists: the question is the same as for an unknown id
	}
	ctx, cancel := context.WithTimeout(ctx, AuthorizeTimeout)
	defer cancel()
	err := asFault(s.opts.Authorizer.MaySee(ctx, from, to))
	switch {
	case err == nil && kinds:
		return nil
	case err == nil:
		return errUnseen()
	case err.Code == fault.Internal:
		s.log.Error("authorization failed without a decision", "peer", from.ID, "node", to.ID, "err", err.Cause)
	}
	return err
}

// asFault returns err as a fault. An error that is not one becomes Internal, whose cause only the log shows.
func asFault(err error) *fault.Error {
	if err == nil {
		return nil
	}
	if f := fault.As(err); f != nil {
		return f
	}
	return &fault.Error{
		Code: fault.Internal, Message: "the server could not decide whether this is allowed", Cause: err,
	}
}

func undecided(err *fault.Error) bool {
	return err.Code == fault.Internal || err.Code == fault.Unavailable
}

// Doubt invalidates answers that the Authorizer is still working on: the server asks for them again. Call it when
// permissions have changed, before rechecking or revoking participants in the table.
func (s *Server) Doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authGen++
}

// Recheck asks the Authorizer again about every tunnel of these participants, all tunnels if none is named, and ends
// those that it refuses now. Call it when a role or a workspace's owner has changed. It blocks for all answers. An
// error names the participants that could not be decided; their tunnels stay, so call it again.
func (s *Server) Recheck(ctx context.Context, ids ...uuid.UUID) error {
	type want struct {
		p  *peer
		t  *tunnel
		me Principal
		to Target
	}
	var wants []want
	seen := make(map[*tunnel]bool)
	gather := func(p *peer) {
		for _, t := range p.tunnels {
			if seen[t] {
				continue
			}
			seen[t] = true
			for _, side := range []*peer{t.initiator, t.destination} {
				if o := t.other(side); *t.wantedBy(side) {
					wants = append(wants, want{side, t, side.principal, Target{o.principal.ID, o.principal.Kind}})
				}
			}
		}
	}
	s.mu.Lock()
	s.authGen++
	if len(ids) == 0 {
		for _, p := range s.peers {
			gather(p)
		}
	}
	for _, id := range ids {
		if p := s.peers[id]; p != nil {
			gather(p)
		}
	}
	s.mu.Unlock()

	var open []error
	for _, w := range wants {
		err := s.maySee(ctx, w.me, w.to)
		if err == nil {
			continue
		}
		if undecided(err) {
			open = append(open, fmt.Errorf("recheck %s → %s: %w", w.me.ID, w.to.ID, err))
			continue
		}
		s.counters.refused.Add(1)
		s.mu.Lock()
		if w.p.tunnels[w.to.ID] == w.t {
			s.unlink(w.p, w.t)
			w.p.refuse(w.to.ID, err)
		}
		s.mu.Unlock()
	}
	return errors.Join(open...)
}
