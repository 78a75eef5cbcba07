package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	batch      = 128 // messages taken from the table at once
	maxNotices = 8
	maxAnswers = 1024 // refusals, and confirmations of unsubscribe, that wait for a client to read them
	// messageRate is how many messages per second the server reads from a participant that is not a server, after a
	// burst. The rest waits.
	messageRate  = 200
	messageBurst = 1000
)

// session is one connection of a peer. The fields below the heading are guarded by Server.mu.
type session struct {
	conn      protocol.Conn
	principal Principal
	key       tailnet.PublicKey
	version   int                    // the lower of both sides'
	pass      string                 // for a client, of this connection
	restoring chan protocol.PeerPass // of an agent, for restoreClients; nil until the agent names a client
	own       sync.WaitGroup         // the session's goroutines
	wake      notify.Wake            // for the writer
	ctx       context.Context
	cancel    context.CancelFunc
	joined    time.Time

	// Guarded by Server.mu.
	peer        *peer
	first       []byte        // the welcome
	relay       []byte        // the newest relay map that was not sent yet
	rtt         time.Duration // 0 while unknown
	goodbyes    [][]byte      // of the previous connection, sent again
	notices     [][]byte
	refused     map[uuid.UUID]protocol.Refused
	left        map[uuid.UUID]struct{} // to be confirmed as unsubscribed
	final       *protocol.ErrorMessage
	finalStatus websock.Status
}

// end makes the writer send m and close the connection.
func (x *session) end(m protocol.ErrorMessage, status websock.Status) {
	if x.final == nil {
		x.final, x.finalStatus = &m, status
		x.wake.Poke()
	}
}

func (x *session) notify(data []byte) {
	if len(x.notices) < maxNotices {
		x.notices = append(x.notices, data)
		x.wake.Poke()
	}
}

func (x *session) refuse(r protocol.Refused) {
	if len(x.refused) >= maxAnswers {
		x.end(protocol.ErrorMessage{
			Code: fault.RateLimited, Message: "too many refused subscriptions",
		}, websock.StatusPolicy)
		return
	}
	x.refused[r.ID] = r
	x.wake.Poke()
}

// confirm makes the writer confirm the end of the subscription to id, after the changes that this causes.
func (x *session) confirm(id uuid.UUID) {
	switch {
	case x.version < protocol.VersionUnsubscribed:
	case len(x.left) >= maxAnswers:
		x.end(protocol.ErrorMessage{
			Code: fault.RateLimited, Message: "too many subscriptions are being given up",
		}, websock.StatusPolicy)
	default:
		x.left[id] = struct{}{}
		x.peer.mark(id)
	}
}

// seen returns when the other end last sent something.
func (x *session) seen() time.Time { return protocol.LastSeen(x.conn) }

// Serve serves a participant until its connection or ctx ends, and closes conn. It returns why the connection ended, or
// nil after a bye.
func (s *Server) Serve(ctx context.Context, conn protocol.Conn, p Principal, h protocol.Hello) error {
	x, err := s.join(ctx, conn, p, h)
	if err != nil {
		s.counters.rejected.Add(1)
		turnAway(ctx, conn, err)
		return err
	}
	defer s.serving.Done()
	defer context.AfterFunc(s.ctx, x.cancel)()

	x.own.Go(func() { s.write(x) })
	x.own.Go(func() { s.measure(x) })
	switch p.Kind {
	case protocol.KindServer:
		x.own.Go(func() { s.greetServer(x) })
	case protocol.KindClient:
		x.own.Go(func() { s.confirm(x) })
	}
	err = s.read(x, h)
	s.leave(x, err)
	if violation := fault.As(err); violation != nil {
		x.own.Wait() // the writer sends it, and closes
	}
	x.cancel()
	conn.Close(websock.StatusNormal, "")
	x.own.Wait()
	if errors.Is(err, errBye) {
		return nil
	}
	return err
}

// turnAway ends a connection that was not admitted.
func turnAway(ctx context.Context, conn protocol.Conn, err error) {
	m := protocol.ErrorMessage{Code: fault.Internal, Message: "internal error"}
	if f := fault.As(err); f != nil {
		m = protocol.ErrorMessage{Code: f.Code, Message: f.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if conn.Write(ctx, protocol.Encode(protocol.ServerMessage{Error: &m})) == nil {
		conn.Close(websock.StatusPolicy, m.Message)
		return
	}
	conn.Close(websock.StatusInternal, "")
}

var errBye = errors.New("bye")

// leave removes the session from the table. A fault means that the client broke the protocol.
func (s *Server) leave(x *session, err error) {
	violation := fault.As(err)
	if violation != nil {
		s.counters.violations.Add(1)
		s.log.Warn("mesh participant broke the protocol", "peer", x.principal.ID, "kind", string(x.principal.Kind),
			"err", err)
	}
	s.mu.Lock()
	delete(s.sessions, x)
	var b *binding
	if x.peer.session == x {
		if violation != nil || errors.Is(err, errBye) {
			b = s.remove(x.peer)
		} else {
			s.lose(x.peer)
		}
	}
	if violation != nil {
		x.end(protocol.ErrorMessage{Code: violation.Code, Message: violation.Error()}, websock.StatusPolicy)
	}
	s.mu.Unlock()
	s.release(b)
}

// read handles what the client sends. It returns errBye, a fault if the client broke the protocol, or why reading
// ended.
func (s *Server) read(x *session, h protocol.Hello) error {
	limit := rate.NewLimiter(messageRate, messageBurst)
	if x.principal.Kind == protocol.KindServer {
		limit.SetLimit(rate.Inf)
	}
	if h.Node != nil && x.version >= protocol.VersionEarly {
		if err := s.handleNode(x, *h.Node); err != nil {
			return err
		}
	}
	if id, ok := s.resolve(x, h); ok {
		if err := s.subscribe(x, id, true); err != nil {
			return err
		}
	}
	for _, id := range s.firstTargets(x, h) {
		if err := s.subscribe(x, id, !slices.Contains(h.Subscribe, id)); err != nil {
			return err
		}
	}
	for {
		data, err := x.conn.Read(x.ctx)
		switch {
		case errors.Is(err, websock.ErrTooBig):
			return fault.New(fault.TooLarge, "message of more than %d bytes", protocol.MaxClientMessage)
		case errors.Is(err, websock.ErrNotText):
			return fault.New(fault.Invalid, "binary message")
		case err != nil:
			return fmt.Errorf("read from participant: %w", err)
		}
		if err := limit.Wait(x.ctx); err != nil {
			return fmt.Errorf("read from participant: %w", err)
		}
		m, err := protocol.DecodeClientMessage(data)
		if err != nil {
			return fault.New(fault.Invalid, "malformed message: %w", err)
		}
		if err := s.handle(x, m); err != nil {
			return err
		}
	}
}

func (s *Server) handle(x *session, m protocol.ClientMessage) error {
	switch {
	case m.Node != nil:
		return s.handleNode(x, *m.Node)
	case m.Subscribe != nil:
		return s.subscribe(x, m.Subscribe.ID, false)
	case m.Unsubscribe != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.peer.session != x {
			return nil
		}
		if t := x.peer.tunnels[m.Unsubscribe.ID]; t != nil && *t.wantedBy(x.peer) {
			s.unlink(x.peer, t)
		} else {
			s.disclaim(x.peer, m.Unsubscribe.ID)
		}
		x.confirm(m.Unsubscribe.ID)
	case m.Ready != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		t := x.peer.tunnels[m.Ready.ID]
		if t == nil || x.peer.session != x || t.destination != x.peer || t.state != offered || !t.asked {
			return nil // too late, or for an earlier key of the initiator
		}
		if x.peer.views[m.Ready.ID].key == t.initiator.key {
			s.accepted(t)
		}
	case m.Restore != nil:
		return s.handleRestore(x, *m.Restore)
	case m.Bye != nil:
		return errBye
	}
	return nil
}

// handleNode applies a node's announcement. A node may announce only itself.
func (s *Server) handleNode(x *session, info tailnet.NodeInfo) error {
	if info.ID != x.principal.ID {
		return fault.New(fault.Forbidden, "a node may announce itself only, not %s", info.ID)
	}
	if info.Key != x.key {
		return fault.New(fault.Forbidden, "a node may announce only the key of its hello")
	}
	if !s.knowsRegion(info.Region) {
		return nil // it has no home relay, or one that was removed from the map: the earlier announcement stays
	}
	a := newAnnouncement(info, x.principal.Kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.peer.session == x {
		s.announce(x.peer, a)
	}
	return nil
}

func (s *Server) knowsRegion(region int) bool {
	for _, r := range s.opts.RelayMap().Regions {
		if r.ID == region && region > 0 {
			return true
		}
	}
	return false
}

// write sends what collect returns, until the session ends. It closes the connection when it cannot send, and after the
// last message.
func (s *Server) write(x *session) {
	send := func(data []byte) error {
		ctx, cancel := context.WithTimeout(x.ctx, protocol.WriteTimeout)
		defer cancel()
		err := x.conn.Write(ctx, data)
		if errors.Is(err, context.DeadlineExceeded) {
			s.counters.dropped.Add(1)
		}
		return err
	}
	var out [][]byte
	for {
		var final *protocol.ErrorMessage
		out, final = s.collect(x, out[:0])
		for _, data := range out {
			if err := send(data); err != nil {
				x.conn.Close(websock.StatusTryAgain, "too slow")
				return
			}
		}
		switch {
		case final != nil:
			ctx, cancel := context.WithTimeout(x.ctx, closeTimeout)
			err := x.conn.Write(ctx, protocol.Encode(protocol.ServerMessage{Error: final}))
			cancel()
			if err != nil {
				s.log.Debug("cannot deliver last message", "peer", x.principal.ID, "err", err)
			}
			x.conn.Close(x.finalStatus, final.Message)
			return
		case len(out) > 0:
			continue
		}
		select {
		case <-x.wake:
		case <-x.ctx.Done():
			return
		}
	}
}

// collect appends to out the next messages for the client. A final message comes alone.
func (s *Server) collect(x *session, out [][]byte) ([][]byte, *protocol.ErrorMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.final != nil {
		return nil, x.final
	}
	if x.first != nil {
		out, x.first = append(out, x.first), nil
	}
	if x.relay != nil {
		out, x.relay = append(out, x.relay), nil
	}
	out, x.goodbyes = append(out, x.goodbyes...), nil
	out, x.notices = append(out, x.notices...), nil
	for id, r := range x.refused {
		out = append(out, protocol.Encode(protocol.ServerMessage{Refused: &r}))
		delete(x.refused, id)
	}
	p := x.peer
	if p.session != x {
		return out, nil
	}
	n := min(batch, len(p.dirtyOrder))
	for _, id := range p.dirtyOrder[:n] {
		delete(p.dirty, id)
		out = p.compare(id, out)
		if _, ok := x.left[id]; ok {
			out = append(out, protocol.Encode(protocol.ServerMessage{Unsubscribed: &protocol.PeerRef{ID: id}}))
			delete(x.left, id)
		}
	}
	if p.dirtyOrder = p.dirtyOrder[n:]; len(p.dirtyOrder) == 0 {
		p.dirtyOrder = nil
	}
	if n > 0 && len(out) == 0 {
		x.wake.Poke() // nothing to send about these, but perhaps about the next
	}
	return out, nil
}
