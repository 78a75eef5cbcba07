package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tailscale.com/derp"
	"tailscale.com/disco"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/tailnet/internal/fairqueue"
)

const (
	// peerQueue limits what waits for one peer on a relay connection, in bytes. Senders limit what they have in flight
	// themselves, and a packet dropped here looks to them like one lost on the path.
	peerQueue = 16 << 20
	// coalesce is how much is written to a relay at once, in bytes: packets to other peers wait until it is written.
	// relayRead is how much is read at once.
	coalesce  = 16 << 10
	relayRead = 64 << 10

	relayTimeout   = 5 * time.Second         // for a connection attempt, per method
	upgradeTimeout = 2500 * time.Millisecond // for the answer to an upgrade

	// The first of several attempts to succeed replaces a connection. Attempts start renewGap apart: the kernel
	// retransmits the first packet of an attempt only after a second, so an attempt that started just before the
	// network came back would take that long.
	renewGap   = 100 * time.Millisecond
	renewTries = 10                           // after each call to renew
	maxTries   = int(relayTimeout / renewGap) // at a time: one may start every renewGap, however long each takes

	// linger is how long a connection is kept after magicsock gives it up: after a rebind, magicsock wants it again at
	// once.
	linger = 5 * time.Second

	minRelayRetry = 100 * time.Millisecond
	maxRelayRetry = 5 * time.Second
	// offlineRetry is the longest pause before the next attempt at the coordinator's own relay while the coordinator is
	// away. That relay admits a node after its coordinator has, whose welcome makes SetRelays cut the pause short.
	// Before that an attempt only keeps the server busy, and after a restart of the server all its nodes would make
	// some.
	offlineRetry = 10 * time.Second
)

// relayLink is this node's connection to one relay. It is established while magicsock wants it: always for the home
// relay, and for other relays while this node communicates with peers whose home they are.
//
// Outgoing packets wait in one queue per peer. The queues take turns, so that a peer receiving many packets does not
// delay packets to other peers. The kernel gets few packets ahead of time (tailnet/internal/sendbuffer): its queue is
// one for all.
type relayLink struct {
	engine *Engine
	relay  Relay
	host   string // the shim's host name for the relay

	done    chan struct{} // closed by close
	renewal notify.Wake   // renew was called
	retry   notify.Wake   // retry without waiting
	running sync.WaitGroup

	mu        sync.Mutex
	work      sync.Cond // signaled when there is something to send, or a connection or the link ends
	wants     map[*shimConn]bool
	wanted    chan struct{} // closed while wants is not empty
	idle      chan struct{} // closed while wants is empty
	websocket bool          // the native upgrade does not get through
	state     RelayState
	current   *relayConn                      // nil while there is none
	asked     time.Time                       // when the relay was asked for an answer; zero once it has answered
	queue     fairqueue.Queue[key.NodePublic] // of packets of copyPacket, by peer
}

func newRelayLink(e *Engine, r Relay, host string) *relayLink {
	l := &relayLink{
		engine: e, relay: r, host: host, done: make(chan struct{}), renewal: notify.NewWake(), retry: notify.NewWake(),
		wants: make(map[*shimConn]bool), wanted: make(chan struct{}), idle: make(chan struct{}),
	}
	l.work.L = &l.mu
	close(l.idle)
	l.running.Go(l.run)
	return l
}

// close ends the link and waits until it has stopped.
func (l *relayLink) close() {
	l.mu.Lock()
	close(l.done)
	l.work.Broadcast()
	l.mu.Unlock()
	l.running.Wait()
}

// want keeps the link connected for c until it is called with false.
func (l *relayLink) want(c *shimConn, want bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.wants)
	if want {
		l.wants[c] = true
	} else {
		delete(l.wants, c)
	}
	switch {
	case before == 0 && len(l.wants) > 0:
		close(l.wanted)
		l.idle = make(chan struct{})
	case before > 0 && len(l.wants) == 0:
		close(l.idle)
		l.wanted = make(chan struct{})
	}
}

// shimmed reports whether magicsock wants the link.
func (l *relayLink) shimmed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wants) > 1 || len(l.wants) == 1 && !l.wants[expected]
}

// confirm marks an expected relay as confirmed by SetRelays. A relay that refused the node earlier, because the node
// was not admitted yet, is retried at once.
func (l *relayLink) confirm() {
	l.want(expected, false)
	l.retry.Poke()
}

// renew replaces the connection as soon as a new one is established.
func (l *relayLink) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewLocked()
}

func (l *relayLink) renewLocked() {
	l.renewal.Poke()
	l.retry.Poke()
}

// check asks the relay for an answer. If the relay has not answered the last question for patience, check renews the
// connection. It does not block.
func (l *relayLink) check(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, asked := l.current, l.asked
	switch {
	case c == nil || !asked.IsZero() && time.Since(asked) >= patience:
		l.renewLocked()
	case asked.IsZero():
		l.asked = time.Now()
		c.running.Go(func() {
			if err := c.ask(); err != nil {
				c.end(err)
			}
		})
	}
}

// send queues a packet for a peer, or drops it if the peer's queue is full.
func (l *relayLink) send(peer key.NodePublic, data []byte) {
	if len(data) > maxPacket {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue.BytesOf(peer)+len(data) > peerQueue {
		return
	}
	l.queue.Push(peer, copyPacket(data))
	l.work.Signal()
}

// next returns the packet whose turn it is. data is nil if the connection has ended, or if no packet is queued and wait
// is not set; with wait set, next blocks until there is one.
func (l *relayLink) next(c *relayConn, wait bool) (peer key.NodePublic, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queue.Bytes() == 0 || c.ended() {
		if !wait || c.ended() {
			return peer, nil
		}
		l.work.Wait()
	}
	peer, data, _ = l.queue.Pop()
	return peer, data
}

// forget drops the packets waiting for a peer that is gone.
func (l *relayLink) forget(peer key.NodePublic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, data := range l.queue.Forget(peer) {
		freePacket(data)
	}
}

// run keeps the link connected while it is wanted.
func (l *relayLink) run() {
	pause := backoff.Backoff{Min: minRelayRetry, Max: maxRelayRetry}
	for {
		l.mu.Lock()
		wanted := l.wanted
		l.mu.Unlock()
		select {
		case <-wanted:
		case <-l.done:
			return
		}
		c, err := l.connect(0)
		if err == nil {
			var welcome bool
			if welcome, err = l.carry(c); welcome {
				pause.Reset()
			}
		}
		if err == nil {
			continue
		}
		l.note(nil, err)
		wait := time.NewTimer(l.pause(&pause))
		select {
		case <-wait.C:
		case <-l.retry:
			wait.Stop()
		case <-l.done:
			wait.Stop()
			return
		}
	}
}

// pause returns how long to wait before the next attempt, unless retry cuts it short.
func (l *relayLink) pause(usual *backoff.Backoff) time.Duration {
	if l.relay.Coordinators && !l.engine.online.Load() {
		return offlineRetry/2 + rand.N(offlineRetry/2)
	}
	return usual.Next()
}

// carry uses a connection and its replacements until one breaks. It reports whether the relay welcomed the last one;
// err is nil when the link is no longer wanted.
func (l *relayLink) carry(c *relayConn) (welcome bool, err error) {
	for {
		l.use(c)
		next, err := l.await(c)
		c.end(errUnwanted)
		l.leave()
		c.running.Wait()
		switch {
		case errors.Is(err, errUnwanted):
			l.note(nil, nil)
			return true, nil
		case err != nil:
			return c.welcome, err
		}
		c = next
	}
}

// await waits until a connection breaks, is no longer wanted, or has a successor.
func (l *relayLink) await(c *relayConn) (next *relayConn, err error) {
	var over <-chan time.Time // set while the link is not wanted
	for {
		l.mu.Lock()
		change := l.idle
		if over != nil {
			change = l.wanted
		}
		l.mu.Unlock()
		select {
		case <-c.over:
			return nil, c.err
		case <-l.renewal:
			if next, err := l.connect(renewTries); err == nil {
				return next, nil
			} // otherwise the old connection may still work
		case <-change:
			if over == nil {
				over = time.After(linger)
			} else {
				over = nil
			}
		case <-over:
			return nil, errUnwanted
		case <-l.done:
			return nil, errUnwanted
		}
	}
}

var errUnwanted = errors.New("connection is no longer needed")

// leave makes the link forget its connection, which has ended.
func (l *relayLink) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
	l.work.Broadcast()
}

func (l *relayLink) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work.Broadcast()
}

// note records the link's state: connected through c, or not connected because of problem.
func (l *relayLink) note(c *relayConn, problem error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Connected, l.state.Problem = c != nil, ""
	if c != nil {
		l.state.Websocket = c.websocket
	}
	if problem != nil {
		l.state.Problem = problem.Error()
	}
}

// use starts reading from and writing to a connection.
func (l *relayLink) use(c *relayConn) {
	l.mu.Lock()
	l.current, l.asked = c, time.Time{}
	l.mu.Unlock()
	l.engine.relaysMade.Add(1)
	l.engine.mux.Retry()
	c.running.Go(func() { c.end(l.read(c)); l.wake() })
	c.running.Go(func() { c.end(l.write(c)) })
}

func (l *relayLink) write(c *relayConn) error {
	for {
		peer, data := l.next(c, c.out.empty())
		if data == nil {
			if c.ended() {
				return errUnwanted
			}
			if err := c.out.flush(); err != nil {
				return fmt.Errorf("write to relay: %w", err)
			}
			continue
		}
		err := c.client.Send(peer, data)
		freePacket(data)
		if err != nil {
			return fmt.Errorf("write to relay: %w", err)
		}
	}
}

func (l *relayLink) read(c *relayConn) error {
	for {
		message, err := c.client.Recv()
		if err != nil {
			return fmt.Errorf("read from relay: %w", err)
		}
		switch m := message.(type) {
		case derp.ServerInfoMessage: // this node is admitted
			c.welcome = true
			l.note(c, nil)
			l.mu.Lock()
			l.asked = time.Now()
			l.mu.Unlock()
			if err := c.ask(); err != nil {
				return err
			}
		case derp.PongMessage:
			l.answered()
		case derp.ReceivedPacket:
			if disco.LooksLikeDiscoWrapper(m.Data) {
				l.toMagicsock(m.Source, m.Data)
			} else {
				l.engine.bind.arrived(m.Source, m.Data, c.over)
			}
		case derp.PingMessage:
			if err := c.client.SendPong(m); err != nil {
				return fmt.Errorf("write to relay: %w", err)
			}
			if err := c.out.flush(); err != nil {
				return fmt.Errorf("write to relay: %w", err)
			}
		}
	}
}

// ask asks the relay for an answer, whose arrival tells the round-trip time.
func (c *relayConn) ask() error {
	if err := c.client.SendPing([8]byte{}); err != nil {
		return fmt.Errorf("write to relay: %w", err)
	}
	if err := c.out.flush(); err != nil {
		return fmt.Errorf("write to relay: %w", err)
	}
	return nil
}

// answered records the round-trip time to the relay, once per question: a relay cannot set it at other times.
func (l *relayLink) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked.IsZero() {
		return
	}
	l.state.Latency = max(time.Since(l.asked), time.Microsecond)
	l.asked = time.Time{}
}

// toMagicsock passes a disco message to magicsock.
func (l *relayLink) toMagicsock(from key.NodePublic, data []byte) {
	l.mu.Lock()
	var to *shimConn
	for c := range l.wants {
		if c != expected {
			to = c
		}
	}
	l.mu.Unlock()
	if to != nil {
		to.deliver(from, data)
	}
}
