package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// complainEvery is when the log first repeats a warning about a server that stays away. The time doubles up to
// complainRarely.
const (
	complainEvery  = time.Minute
	complainRarely = time.Hour
)

func (c *Client) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		select {
		case <-c.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	background.Go(func() { c.runDue(ctx) })
	err := c.loop(ctx)
	cancel()
	background.Wait()
	if err != nil {
		c.forgetAll()
	}
	c.end(err)
	return err
}

func (c *Client) end(err error) {
	c.mu.Lock()
	c.err, c.online = err, false
	c.mu.Unlock()
	c.byeOnce.Do(func() { close(c.byeSent) })
	close(c.done)
}

// loop keeps the client connected. It returns nil when ctx has ended, or the server's refusal.
func (c *Client) loop(ctx context.Context) error {
	var outage backoff.Outage
	var complained time.Time
	patience := complainEvery
	for tries := 1; ctx.Err() == nil; tries++ {
		began, err := c.connection(ctx)
		switch {
		case ctx.Err() != nil:
			continue
		case refusedForGood(err):
			return err
		case !began.IsZero():
			c.log.Info("coordinator connection lost", "reason", err)
			tries = 0
			outage.Lost(began)
			patience = complainEvery
		case complained.IsZero() || time.Since(complained) >= patience:
			c.log.Warn("not connected to the server, trying again", "url", c.opts.URL, "err", err)
			if !complained.IsZero() {
				patience = min(2*patience, complainRarely)
			}
			complained = time.Now()
		default:
			c.log.Debug("not connected to the server", "err", err, "tries", tries)
		}
		_ = backoff.Sleep(ctx, max(outage.Next(), askedPause(err)), c.probe) // fails only when ctx has ended
	}
	return nil
}

// askedPause returns how long a busy server wants this client to wait, and up to a quarter more, since it gives many
// clients whole seconds. It returns 0 for other errors: with a load balancer, another server may be there at once.
func askedPause(err error) time.Duration {
	f := fault.As(err)
	if f == nil || f.Reason != fault.Busy || f.RetryAfter <= 0 {
		return 0
	}
	return f.RetryAfter + rand.N(f.RetryAfter/4+1)
}

// connection dials and serves one connection to its end. began is when the welcome came, or zero.
func (c *Client) connection(ctx context.Context) (began time.Time, err error) {
	dial := c.opts.Dial
	if dial == nil {
		dial = c.dialWebsocket
	}
	hello := c.hello()
	greeting, cancel := context.WithTimeout(ctx, protocol.DialTimeout)
	defer cancel()
	conn, err := dial(greeting, hello)
	if err != nil {
		return began, fmt.Errorf("connect to the coordinator: %w", err)
	}
	defer conn.Close(websock.StatusNormal, "")
	data, err := conn.Read(greeting)
	if err != nil {
		return began, fmt.Errorf("wait for the welcome: %w", err)
	}
	w, err := readWelcome(data)
	if err != nil {
		return began, err
	}
	if err := c.enter(conn, *w, hello); err != nil {
		return began, err
	}
	defer c.leave()
	c.log.Info("connected to the coordinator", "node", w.ID, "version", w.Version)
	var announced uint64
	if hello.Node != nil && w.Version >= protocol.VersionEarly {
		announced = hello.Node.Seq
	}
	return time.Now(), c.converse(ctx, conn, announced)
}

// hello returns the hello for the next connection.
func (c *Client) hello() protocol.Hello {
	h := protocol.Hello{Version: protocol.Version, Key: c.opts.Key, Subscribe: c.firstSubscriptions()}
	c.mu.Lock()
	node := c.node
	if c.welcome == nil {
		h.Name = c.opts.Name
	}
	c.mu.Unlock()
	if node == nil && c.opts.Early != nil {
		node = c.opts.Early()
	}
	if node != nil {
		if info := protocol.Presentable(node.Info()); info.Region != 0 &&
			len(protocol.Encode(info)) <= protocol.MaxHelloNode {
			h.Node = &info
		}
	}
	return h
}

func readWelcome(data []byte) (*protocol.Welcome, error) {
	m, err := protocol.DecodeServerMessage(data)
	switch {
	case err != nil:
		return nil, err
	case m.Error != nil:
		return nil, &fault.Error{Code: m.Error.Code, Message: m.Error.Message}
	case m.Welcome == nil:
		return nil, errors.New("the first message is not a welcome")
	}
	return m.Welcome, nil
}

// firstSubscriptions returns as many subscriptions as fit into a hello.
func (c *Client) firstSubscriptions() []uuid.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []uuid.UUID
	for id := range c.subscriptions {
		if len(ids) < protocol.MaxHelloSubscriptions {
			ids = append(ids, id)
		}
	}
	return ids
}

// enter applies the welcome of a connection. It makes the node if there is none, and sets its relay map.
func (c *Client) enter(conn protocol.Conn, w protocol.Welcome, h protocol.Hello) error {
	node, err := c.nodeFor(w)
	if err != nil {
		return err
	}
	if err := node.SetRelayMap(w.Relays, c.opts.URL); err != nil {
		return fmt.Errorf("set relay map: %w", err)
	}
	node.SetOnline(true)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.node, c.welcome, c.online = node, &w, true
	c.conn, c.since = conn, time.Now()
	c.welcomes++
	for id, k := range c.peers {
		c.lose(id, k) // until the server confirms it
	}
	c.out.restart()
	for id := range c.leaving { // the server may have missed it
		if c.subscriptions[id] == nil {
			c.out.unsubscribe(id)
		}
		if k := c.peers[id]; k != nil {
			k.doubtful = true
		}
	}
	clear(c.leaving)
	if w.Version >= protocol.VersionPasses && c.opts.Kind == protocol.KindAgent {
		for id, k := range c.peers {
			if k.kind == protocol.KindClient {
				c.out.restore = append(c.out.restore, protocol.PeerPass{ID: id, Key: k.info.Key, Pass: k.pass})
			}
		}
	}
	for id, want := range c.subscriptions {
		want.retry = time.Time{}
		if !slices.Contains(h.Subscribe, id) {
			c.out.subscribe(id)
		}
	}
	for _, id := range h.Subscribe {
		if c.subscriptions[id] == nil {
			c.out.unsubscribe(id) // unsubscribed while the hello was in transit
		}
	}
	c.changed.Notify()
	c.due.Poke()
	return nil
}

func (c *Client) nodeFor(w protocol.Welcome) (Node, error) {
	if (c.opts.Kind == protocol.KindClient || c.opts.Kind == protocol.KindProxy) &&
		w.ID != tailnet.ClientID(c.opts.Key) {
		return nil, &setupError{errors.New("the server gave this node an id that is not its key's")}
	}
	c.mu.Lock()
	node, earlier := c.node, c.welcome
	c.mu.Unlock()
	if node != nil {
		if earlier.ID != w.ID {
			return nil, &setupError{fmt.Errorf("the server knows this node as %s now, no longer as %s", w.ID, earlier.ID)}
		}
		return node, nil
	}
	node, err := c.opts.NewNode(w)
	if err != nil {
		return nil, &setupError{fmt.Errorf("make the node: %w", err)}
	}
	if node.PublicKey() != c.opts.Key || node.Info().ID != w.ID {
		return nil, &setupError{errors.New("the node that was made has another key or id than the hello and the welcome")}
	}
	return node, nil
}

// leave undoes enter, except that the node keeps its peers.
func (c *Client) leave() {
	c.mu.Lock()
	node := c.node
	c.online = false
	c.mu.Unlock()
	node.SetOnline(false)
}

// converse sends and receives until the connection ends, and returns why. announced is the sequence number of the
// announcement that the hello carried, 0 for none.
func (c *Client) converse(ctx context.Context, conn protocol.Conn, announced uint64) error {
	// Detached from ctx so that the bye is sent even after cancellation.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var writer sync.WaitGroup
	writer.Go(func() { c.write(ctx, own, conn, announced) })
	defer writer.Wait()
	defer cancel()
	pace := rate.NewLimiter(paceRate, paceBurst)
	for {
		data, err := conn.Read(own)
		if err != nil {
			return err
		}
		if c.opts.Kind != protocol.KindServer {
			if err := pace.Wait(own); err != nil {
				return err
			}
		}
		m, err := protocol.DecodeServerMessage(data)
		if err != nil {
			return err
		}
		if err := c.handle(m); err != nil {
			return err
		}
	}
}

// write sends the contents of the outbox until own ends. When ctx ends it sends bye. It closes the connection. sent is
// the sequence number of the latest announcement on this connection.
func (c *Client) write(ctx, own context.Context, conn protocol.Conn, sent uint64) {
	defer conn.Close(websock.StatusNormal, "")
	c.mu.Lock()
	node := c.node
	c.mu.Unlock()
	send := func(m protocol.ClientMessage) bool {
		limited, cancel := context.WithTimeout(own, protocol.WriteTimeout)
		defer cancel()
		return conn.Write(limited, protocol.Encode(m)) == nil // the reader returns the reason
	}
	for {
		if info := protocol.Presentable(node.Info()); info.Region != 0 && info.Seq != sent {
			if !send(protocol.ClientMessage{Node: &info}) {
				return
			}
			sent = info.Seq
		}
		c.mu.Lock()
		messages := c.out.take(c.leaving, c.welcome.Version >= protocol.VersionUnsubscribed)
		c.mu.Unlock()
		for _, m := range messages {
			if !send(m) {
				return
			}
		}
		select {
		case <-c.out.wake:
		case <-node.Changed():
		case <-c.probe:
			if p, ok := conn.(interface{ Ping(context.Context) error }); ok {
				limited, cancel := context.WithTimeout(own, probeTimeout)
				err := p.Ping(limited)
				cancel()
				if err != nil && ctx.Err() == nil {
					if dead, ok := conn.(interface{ CloseNow() error }); ok {
						_ = dead.CloseNow() // a closing handshake would block
					}
					return
				}
			}
		case <-own.Done():
			return
		case <-ctx.Done():
			limited, cancel := context.WithTimeout(own, byeTimeout)
			defer cancel()
			if err := conn.Write(limited, protocol.Encode(protocol.ClientMessage{Bye: &protocol.Bye{}})); err != nil {
				c.log.Debug("cannot send bye", "err", err)
			}
			c.byeOnce.Do(func() { close(c.byeSent) })
			return
		}
	}
}
