package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"tailscale.com/derp"
	"tailscale.com/disco"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/notify"
)

const (
	// peerQueue bounds what waits for a relay connection to one peer, in bytes. Senders bound what is on its way themselves, and to them a packet that is
	// dropped here looks like one that the path has lost.
	peerQueue = 16 << 20
	// coalesce is how much is written to a relay at once, in bytes.
	coalesce = 64 << 10

	relayTimeout   = 5 * time.Second         // for a connection, each way that it is tried
	upgradeTimeout = 2500 * time.Millisecond // for the answer to an upgrade

	// A connection is replaced by the first of several attempts, which begin renewGap after each other: the kernel repeats the first
	// packet of one after a second, so that one that began just before the network came back would take that long.
	renewGap   = 250 * time.Millisecond
	renewTries = 5                            // after each call of renew
	maxTries   = int(relayTimeout / renewGap) // at one time: one may begin every renewGap, however long each takes

	// linger is how long a connection is kept that magicsock gave up: after a rebind it wants it again at once.
	linger = 5 * time.Second

	minRelayRetry = 100 * time.Millisecond
	maxRelayRetry = 5 * time.Second
)

// relayLink is this node's connection to one relay, made while magicsock wants it: always for the home relay, for others while peers
// that live there are talked to.
//
// What goes out waits in a queue for each peer, and the queues take turns, so that a peer that many packets go to does not delay
// those to others.
type relayLink struct {
	engine *Engine
	relay  Relay
	host   string // the bridge's name for it

	done    chan struct{} // closed by close
	renewal notify.Wake   // renew was called
	retry   notify.Wake   // do not wait before the next try
	running sync.WaitGroup

	mu        sync.Mutex
	work      sync.Cond // there is something to send, or a connection or the link ends
	wants     map[*bridgeConn]bool
	wanted    chan struct{} // closed while wants is not empty
	idle      chan struct{} // closed while it is
	websocket bool          // the native upgrade does not pass
	cautious  bool          // a connection has fallen silent, perhaps since something on its way loses large packets
	state     RelayState
	queues    map[key.NodePublic]*queue
	turns     []*queue // those that are not empty, in the order of their turns
}

// queue is what waits for one peer.
type queue struct {
	peer    key.NodePublic
	packets [][]byte
	bytes   int
}

func newRelayLink(e *Engine, r Relay, host string) *relayLink {
	l := &relayLink{
		engine: e, relay: r, host: host, done: make(chan struct{}), renewal: notify.NewWake(), retry: notify.NewWake(),
		wants: make(map[*bridgeConn]bool), wanted: make(chan struct{}), idle: make(chan struct{}), queues: make(map[key.NodePublic]*queue),
	}
	l.work.L = &l.mu
	close(l.idle)
	l.running.Go(l.run)
	return l
}

// close ends the link, and waits.
func (l *relayLink) close() {
	l.mu.Lock()
	close(l.done)
	l.work.Broadcast()
	l.mu.Unlock()
	l.running.Wait()
}

// want keeps the link connected until it is called with false.
func (l *relayLink) want(c *bridgeConn, want bool) {
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

// bridged reports whether magicsock wants the link.
func (l *relayLink) bridged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.wants) > 1 || len(l.wants) == 1 && !l.wants[expected]
}

// confirm tells that the relay is one, as was perhaps expected. A relay that refused the node earlier, because it was not admitted
// yet, is tried again at once.
func (l *relayLink) confirm() {
	l.want(expected, false)
	l.retry.Poke()
}

// renew replaces the connection as soon as another one is made.
func (l *relayLink) renew() {
	l.mu.Lock()
	l.cautious = true
	l.mu.Unlock()
	l.renewal.Poke()
	l.retry.Poke()
}

// send queues a packet for a peer, or drops it when too much waits.
func (l *relayLink) send(peer key.NodePublic, data []byte) {
	if len(data) > maxPacket {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[peer]
	if q == nil {
		q = &queue{peer: peer}
		l.queues[peer] = q
	}
	if q.bytes+len(data) > peerQueue {
		return
	}
	buf := packets.Get().(*[maxPacket]byte)
	q.packets = append(q.packets, buf[:copy(buf[:], data)])
	q.bytes += len(data)
	if len(q.packets) == 1 {
		l.turns = append(l.turns, q)
		l.work.Signal()
	}
}

// next is the packet whose turn it is. It waits for one if wait is set; it is nil when the connection ends.
func (l *relayLink) next(c *relayConn, wait bool) (peer key.NodePublic, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.turns) == 0 || c.ended() {
		if !wait || c.ended() {
			return peer, nil
		}
		l.work.Wait()
	}
	q := l.turns[0]
	l.turns = l.turns[1:]
	data = q.packets[0]
	q.packets = q.packets[1:]
	q.bytes -= len(data)
	if len(q.packets) > 0 {
		l.turns = append(l.turns, q)
	} else {
		q.packets = nil
		delete(l.queues, q.peer)
	}
	return q.peer, data
}

// forget drops what waits for a peer that is gone.
func (l *relayLink) forget(peer key.NodePublic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[peer]
	if q == nil {
		return
	}
	delete(l.queues, peer)
	for i, turn := range l.turns {
		if turn == q {
			l.turns = append(l.turns[:i:i], l.turns[i+1:]...)
			break
		}
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
		wait := time.NewTimer(pause.Next())
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

// carry uses a connection, and those that replace it, until one breaks. It reports whether the relay welcomed the last one; err is nil
// when the link is not wanted any more.
func (l *relayLink) carry(c *relayConn) (welcome bool, err error) {
	for {
		l.use(c)
		next, err := l.await(c)
		c.end(errUnwanted)
		l.wake()
		c.running.Wait()
		switch {
		case err == errUnwanted:
			l.note(nil, nil)
			return true, nil
		case err != nil:
			return c.welcome, err
		}
		c = next
	}
}

// await waits until a connection has broken, is not wanted any more, or has a successor.
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
			} // else the old one may still do
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

var errUnwanted = errors.New("the connection is not needed any more")

func (l *relayLink) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work.Broadcast()
}

// note records the link's state: connected by c, or not and why.
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

// use starts to read and write on a connection.
func (l *relayLink) use(c *relayConn) {
	l.engine.relaysMade.Add(1)
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
		packets.Put((*[maxPacket]byte)(data[:maxPacket]))
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

// toMagicsock passes a disco message on.
func (l *relayLink) toMagicsock(from key.NodePublic, data []byte) {
	l.mu.Lock()
	var to *bridgeConn
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

// relayConn is a connection to a relay, to which this node has said hello. What it sends is on its way before the relay's answer.
type relayConn struct {
	client    *derp.Client
	out       *coalescer
	raw       io.Closer
	websocket bool
	welcome   bool // the relay has answered the hello; belongs to the goroutine that reads
	running   sync.WaitGroup

	once sync.Once
	over chan struct{} // closed by end
	err  error
}

func (c *relayConn) end(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.over)
		c.raw.Close()
	})
}

func (c *relayConn) ended() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// connect makes a connection: the first one that comes about of one attempt, and tries more, and renewTries more whenever renew is called.
// It returns an error when all of them have failed.
func (l *relayLink) connect(tries int) (*relayConn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer l.stopWithLink(cancel)()
	type result struct {
		conn *relayConn
		err  error
	}
	results := make(chan result)
	hello := make(chan struct{}, 1)
	open := 0
	attempt := func() {
		open++
		l.running.Go(func() {
			c, err := l.attempt(ctx, hello)
			select {
			case results <- result{c, err}:
			case <-ctx.Done():
				if err == nil {
					c.raw.Close()
				}
			}
		})
	}
	attempt()
	gap := time.NewTicker(renewGap)
	defer gap.Stop()
	for {
		select {
		case r := <-results:
			open--
			if r.err == nil || open == 0 && tries == 0 {
				return r.conn, r.err
			}
		case <-l.renewal:
			tries = renewTries
		case <-gap.C:
			if tries > 0 && open < maxTries {
				attempt()
			}
			tries = max(tries-1, 0)
		case <-ctx.Done():
			return nil, errUnwanted
		}
	}
}

// attempt makes a connection, each way that it is tried within relayTimeout. It puts something into hello before it says hello, and takes
// it out if that fails: to the relay, the latest connection that has said hello is the node's.
func (l *relayLink) attempt(ctx context.Context, hello chan struct{}) (*relayConn, error) {
	l.mu.Lock()
	websocket := l.websocket
	l.mu.Unlock()
	if websocket {
		return l.connectBy(ctx, hello, dialWebsocket, true)
	}
	c, err := l.connectBy(ctx, hello, dialNative, false)
	if refused := (*upgradeError)(nil); err == nil || !errors.As(err, &refused) || ctx.Err() != nil {
		return c, err
	}
	native := err
	if c, err = l.connectBy(ctx, hello, dialWebsocket, true); err != nil {
		return nil, native
	}
	l.engine.log.Info("relay reached by websocket", "addr", l.relay.URL.Host, "reason", native)
	l.mu.Lock()
	l.websocket = true
	l.mu.Unlock()
	return c, nil
}

// upgradeError is what stands between the node and a relay that it has a connection to: something that does not pass the native upgrade.
// A relay that cannot be reached at all is not reached by a websocket either.
type upgradeError struct{ err error }

func (e *upgradeError) Error() string { return e.err.Error() }
func (e *upgradeError) Unwrap() error { return e.err }

// stopWithLink calls stop when the link ends, until the function that it returns is called.
func (l *relayLink) stopWithLink(stop func()) (release func()) {
	released := make(chan struct{})
	l.running.Go(func() {
		select {
		case <-l.done:
			stop()
		case <-released:
		}
	})
	return func() { close(released) }
}

type dialRelay func(ctx context.Context, relay *url.URL, l *relayLink) (net.Conn, *bufio.Reader, error)

func (l *relayLink) connectBy(ctx context.Context, hello chan struct{}, dial dialRelay, websocket bool) (*relayConn, error) {
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	raw, buffered, err := dial(ctx, l.relay.URL, l)
	if err != nil {
		return nil, err
	}
	select {
	case hello <- struct{}{}:
	case <-ctx.Done():
		raw.Close()
		return nil, ctx.Err()
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	out := &coalescer{to: raw}
	rw := bufio.NewReadWriter(buffered, bufio.NewWriterSize(out, 4<<10))
	client, err := derp.NewClient(l.engine.secret, raw, rw, l.engine.logf, derp.CanAckPings(true))
	if !stop() || err != nil {
		raw.Close()
		<-hello
		return nil, &upgradeError{fmt.Errorf("say hello to relay: %w", errors.Join(err, ctx.Err()))}
	}
	out.gather()
	return &relayConn{client: client, out: out, raw: raw, websocket: websocket, over: make(chan struct{})}, nil
}
