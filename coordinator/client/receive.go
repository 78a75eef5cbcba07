package client

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// handle applies one message. An error ends the connection.
func (c *Client) handle(m protocol.ServerMessage) error {
	switch {
	case m.Peer != nil:
		if err := c.bound(m.Peer.Info.ID); err != nil {
			return err
		}
		c.introduced(*m.Peer)
	case m.Lost != nil:
		c.mu.Lock()
		if k := c.peers[m.Lost.ID]; k != nil {
			c.lose(m.Lost.ID, k)
		}
		c.mu.Unlock()
	case m.Gone != nil:
		c.forget(m.Gone.ID, func(k *remote) bool { return k.info.Key == m.Gone.Key })
	case m.Pass != nil:
		c.mu.Lock()
		if k := c.peers[m.Pass.ID]; k != nil && k.info.Key == m.Pass.Key {
			k.pass = m.Pass.Pass
		}
		c.mu.Unlock()
	case m.Refused != nil:
		c.refused(*m.Refused)
	case m.Unsubscribed != nil:
		c.mu.Lock()
		delete(c.leaving, m.Unsubscribed.ID)
		c.out.wake.Poke() // a new subscription to the peer may be waiting for this
		c.changed.Notify()
		c.mu.Unlock()
	case m.Relay != nil:
		c.mu.Lock()
		node := c.node
		w := *c.welcome
		w.Relays = *m.Relay
		c.welcome = &w
		c.mu.Unlock()
		if err := node.SetRelayMap(*m.Relay, c.opts.URL); err != nil {
			c.log.Warn("cannot apply relay map", "err", err)
		}
	case m.Notice != nil:
		c.log.Info("notice from the server", "reason", string(m.Notice.Kind), "message", m.Notice.Message)
		if c.opts.OnNotice != nil {
			c.opts.OnNotice(*m.Notice)
		}
	case m.Error != nil:
		return &fault.Error{Code: m.Error.Code, Message: m.Error.Message}
	}
	return nil // a second welcome brings nothing new
}

// introduced adds a peer to the node, and answers ready once the node has it.
func (c *Client) introduced(u protocol.PeerUpdate) {
	id := u.Info.ID
	c.applying.Lock()
	defer c.applying.Unlock()
	c.mu.Lock()
	old, node := c.peers[id], c.node
	c.mu.Unlock()
	if old != nil && old.info.Key != u.Info.Key {
		node.Remove(id) // the same address under a new key: the old one goes first
	}
	if err := node.Upsert(tailnet.Peer{
		NodeInfo: u.Info, Inbound: c.opts.Inbound(u.Kind), Watch: c.watches(u.Kind), Group: c.opts.Group(id),
	}); err != nil {
		c.log.Warn("cannot add peer", "peer", id, "err", err)
		if old != nil && old.info.Key != u.Info.Key {
			c.mu.Lock()
			delete(c.peers, id)
			c.mu.Unlock()
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &remote{info: u.Info, kind: u.Kind, order: c.order}
	if old == nil || old.info.Key != u.Info.Key {
		c.order++
		k.order = c.order
	} else {
		k.order, k.pass = old.order, old.pass
	}
	c.peers[id] = k
	if u.Ack {
		c.out.ready(id)
	}
	if w := c.subscriptions[id]; w != nil {
		w.err, w.retry = nil, time.Time{}
		w.pause.Reset()
	}
	c.changed.Notify()
}

// watches reports whether the node watches paths to peers of a kind: those that people's sessions travel on. A server
// has too many peers for that, and they have other signs of life.
func (c *Client) watches(kind protocol.Kind) bool {
	person := func(k protocol.Kind) bool { return k == protocol.KindClient || k == protocol.KindProxy }
	return person(c.opts.Kind) && kind == protocol.KindAgent || c.opts.Kind == protocol.KindAgent && person(kind)
}

// forget removes a peer from the node if the predicate as still reports true for it.
func (c *Client) forget(id uuid.UUID, as func(*remote) bool) {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.mu.Lock()
	k, node := c.peers[id], c.node
	if k == nil || !as(k) {
		c.mu.Unlock()
		return
	}
	delete(c.peers, id)
	c.changed.Notify()
	c.mu.Unlock()
	node.Remove(id)
}

// forgetAll removes all peers from the node of a refused participant, so that its connections end here, too.
func (c *Client) forgetAll() {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.peers))
	c.mu.Unlock()
	for _, id := range ids {
		c.forget(id, func(*remote) bool { return true })
	}
}

// refused ends a subscription, or schedules the next attempt.
func (c *Client) refused(r protocol.Refused) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.subscriptions[r.ID]
	if _, leaving := c.leaving[r.ID]; w == nil || leaving {
		return // it answers a subscription that was given up
	}
	w.err = &fault.Error{Code: r.Code, Message: r.Message}
	if transient(w.err) {
		w.retry = time.Now().Add(w.pause.Next())
		c.due.Poke()
	} else {
		w.final = true
		delete(c.subscriptions, r.ID)
		c.log.Warn("peer refused", "peer", r.ID, "reason", r.Message)
	}
	c.changed.Notify()
}

// runDue removes peers that stay lost and repeats temporarily refused subscriptions, until ctx ends.
func (c *Client) runDue(ctx context.Context) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for {
		clock.Reset(c.sweep(time.Now()))
		select {
		case <-clock.C:
		case <-c.due:
		case <-ctx.Done():
			return
		}
	}
}

// sweep does what is due, and returns the time until the next deadline.
func (c *Client) sweep(now time.Time) time.Duration {
	next := now.Add(time.Hour)
	var dead []uuid.UUID
	c.mu.Lock()
	var grace time.Duration
	if c.welcome != nil {
		grace = c.welcome.Grace()
	}
	expired := func(k *remote) bool { return !k.lostAt.IsZero() && !now.Before(k.lostAt.Add(grace)) }
	for ; len(c.lost) > 0; c.lost = c.lost[1:] {
		l := c.lost[0]
		switch {
		case c.void(l):
			continue
		case expired(l.peer):
			dead = append(dead, l.id)
			continue
		case l.peer.lostAt.Add(grace).Before(next):
			next = l.peer.lostAt.Add(grace)
		}
		break
	}
	if len(c.lost) == 0 {
		c.lost = nil
	}
	for id, w := range c.subscriptions {
		switch {
		case w.retry.IsZero():
		case !now.Before(w.retry):
			w.retry = time.Time{}
			c.out.subscribe(id)
		case w.retry.Before(next):
			next = w.retry
		}
	}
	c.mu.Unlock()
	for _, id := range dead {
		c.log.Info("peer removed", "peer", id, "reason", "lost for too long")
		c.forget(id, expired)
	}
	return max(time.Until(next), 0)
}

// outbox holds messages to be sent, coalesced per peer. Client.mu guards all of it but wake.
type outbox struct {
	wake    notify.Wake
	subs    map[uuid.UUID]bool
	readies map[uuid.UUID]struct{}
	restore []protocol.PeerPass
}

func newOutbox() outbox {
	return outbox{wake: notify.NewWake(), subs: make(map[uuid.UUID]bool), readies: make(map[uuid.UUID]struct{})}
}

func (o *outbox) subscribe(id uuid.UUID)   { o.subs[id] = true; o.wake.Poke() }
func (o *outbox) unsubscribe(id uuid.UUID) { o.subs[id] = false; o.wake.Poke() }
func (o *outbox) ready(id uuid.UUID)       { o.readies[id] = struct{}{}; o.wake.Poke() }

// restart drops what a new connection makes moot. It keeps what was unsubscribed while offline.
func (o *outbox) restart() {
	clear(o.readies)
	o.restore = nil
	for id, on := range o.subs {
		if on {
			delete(o.subs, id)
		}
	}
}

// take empties the outbox. Readies come first, because a peer waits for them. If the server confirms unsubscribe,
// leaving holds the peers it has not confirmed yet. take adds to leaving, and keeps back messages about those peers, so
// that what the server sends after its confirmation answers what was sent after it.
func (o *outbox) take(leaving map[uuid.UUID]struct{}, confirms bool) []protocol.ClientMessage {
	var out []protocol.ClientMessage
	for id := range o.readies {
		out = append(out, protocol.ClientMessage{Ready: &protocol.PeerRef{ID: id}})
	}
	for id, on := range o.subs {
		if _, ok := leaving[id]; ok {
			continue
		}
		delete(o.subs, id)
		if on {
			out = append(out, protocol.ClientMessage{Subscribe: &protocol.PeerRef{ID: id}})
			continue
		}
		out = append(out, protocol.ClientMessage{Unsubscribe: &protocol.PeerRef{ID: id}})
		if confirms {
			leaving[id] = struct{}{}
		}
	}
	for peers := range slices.Chunk(o.restore, protocol.MaxRestore) {
		out = append(out, protocol.ClientMessage{Restore: &protocol.Restore{Peers: peers}})
	}
	o.restore = nil
	clear(o.readies)
	return out
}
