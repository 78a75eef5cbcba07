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
)

// relayConn is a connection to a relay to which this node has sent its hello. It sends packets without waiting for the
// relay's answer.
type relayConn struct {
	client    *derp.Client
	out       *coalescer
	raw       io.Closer
	websocket bool
	welcome   bool // the relay has answered the hello; owned by the reading goroutine
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

// connect establishes a connection: the first to succeed of one attempt, tries additional ones, and renewTries more
// whenever renew is called. It returns an error when all of them have failed.
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

// attempt establishes a connection, spending up to relayTimeout on each method it tries. It puts a value into hello
// before it sends the hello, and takes it out if that fails: the relay takes the latest connection that has sent a
// hello for the node's.
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
	l.engine.log.Info("connected to relay over websocket", "addr", l.relay.URL.Host, "reason", native)
	l.mu.Lock()
	l.websocket = true
	l.mu.Unlock()
	return c, nil
}

// upgradeError means that the node reached something that did not let the native upgrade through, such as a proxy. A
// relay that cannot be reached at all cannot be reached over a websocket either.
type upgradeError struct{ err error }

func (e *upgradeError) Error() string { return e.err.Error() }
func (e *upgradeError) Unwrap() error { return e.err }

// stopWithLink calls stop when the link ends, unless release is called first.
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

func (l *relayLink) connectBy(
	ctx context.Context, hello chan struct{}, dial dialRelay, websocket bool,
) (*relayConn, error) {
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
