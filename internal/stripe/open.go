package stripe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// New begins a stream on raw, which is the stream's from then on. Bytes may be written at once.
func New(raw net.Conn) *Conn {
	c := newConn(raw)
	rand.Read(c.name[:])
	c.add(raw, first, c.hello(begins))
	return c
}

// Alone begins a stream that stays on first alone: the bytes travel as they are, at no cost. It blocks until the system took
// the preamble.
func Alone(first net.Conn) error {
	var nameless Conn
	_, err := first.Write(nameless.hello(alone))
	return err
}

// What a connection is for its stream.
const (
	begins byte = iota
	joins
	alone
)

func (c *Conn) hello(is byte) []byte {
	return append(append([]byte{version}, c.name[:]...), is)
}

// Widen opens n more connections for a stream that New began, at the same time, and returns when the other end has answered all of
// them, or ctx ends. A connection that cannot be opened is an error, and the stream goes on without it, as it does without one that
// the other end refuses.
func (c *Conn) Widen(ctx context.Context, n int, dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var opening sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		opening.Go(func() {
			raw, err := dial(ctx)
			if err != nil {
				errs[i] = fmt.Errorf("widen stream: %w", err)
				return
			}
			out, ok := c.add(raw, opened, c.hello(joins))
			if !ok {
				return // the stream is over meanwhile, or has enough
			}
			select {
			case <-out.settled:
			case <-ctx.Done():
				errs[i] = fmt.Errorf("widen stream: wait for the other end: %w", ctx.Err())
			}
		})
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-done:
		}
	}()
	opening.Wait()
	close(done)
	return errors.Join(errs...)
}

const (
	// helloTimeout bounds the preamble of a connection.
	helloTimeout = 30 * time.Second
	// orphanTimeout is how long a connection may wait for the first one of its stream, which was sent before it.
	orphanTimeout = 10 * time.Second
	maxGreeting   = 256 // connections before the end of their preamble
	backlog       = 128
)

// Listener puts streams together from the connections that another listener accepts.
type Listener struct {
	inner net.Listener
	log   *slog.Logger
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
	slots chan struct{}

	mu      sync.Mutex // guards streams and changed
	streams map[key]*Conn
	changed chan struct{} // closed and replaced when a stream begins
}

// key names a stream: the name is worth nothing from another address.
type key struct {
	from netip.Addr
	name [nameSize]byte
}

// Listen begins to accept from inner, which is the listener's from then on. log may be nil.
func Listen(inner net.Listener, log *slog.Logger) *Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Listener{
		inner: inner, log: log, queue: make(chan net.Conn, backlog), done: make(chan struct{}), slots: make(chan struct{}, maxGreeting),
		streams: make(map[key]*Conn), changed: make(chan struct{}),
	}
	l.wg.Go(l.acceptAll)
	return l
}

func (l *Listener) acceptAll() {
	defer l.shut()
	for {
		raw, err := l.inner.Accept()
		if err != nil {
			return
		}
		select {
		case l.slots <- struct{}{}:
		default:
			l.log.Warn("too many connections at once", "peer", raw.RemoteAddr())
			raw.Close()
			continue
		}
		l.wg.Go(func() {
			defer func() { <-l.slots }()
			if err := l.greet(raw); err != nil {
				l.log.Debug("stripe refused", "peer", raw.RemoteAddr(), "err", err)
				raw.Close()
			}
		})
	}
}

// greet reads a connection's preamble and gives it to its stream.
func (l *Listener) greet(raw net.Conn) error {
	defer afterFunc(l.done, func() { raw.SetReadDeadline(time.Unix(1, 0)) })()
	if err := raw.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	var head [preamble]byte
	if _, err := io.ReadFull(raw, head[:]); err != nil {
		return fmt.Errorf("read preamble: %w", err)
	}
	if head[0] != version || head[preamble-1] > alone {
		return errProtocol
	}
	addr, err := netip.ParseAddrPort(raw.RemoteAddr().String())
	if err != nil {
		return fmt.Errorf("parse peer address: %w", err)
	}
	k := key{from: addr.Addr()}
	copy(k.name[:], head[1:])
	if head[preamble-1] == joins {
		c := l.await(k)
		if c == nil {
			return errors.New("its stream is not there")
		}
		if err := raw.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		c.add(raw, accepted, nil)
		return nil
	}
	if err := raw.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if head[preamble-1] == alone {
		l.offer(raw)
		return nil
	}
	return l.begin(k, raw)
}

// begin makes a stream of its first connection.
func (l *Listener) begin(k key, raw net.Conn) error {
	c := newConn(raw)
	l.mu.Lock()
	if l.streams[k] != nil {
		l.mu.Unlock()
		return errProtocol
	}
	l.streams[k] = c
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	c.add(raw, first, nil)
	l.wg.Go(func() {
		select {
		case <-c.done:
		case <-l.done:
		}
		l.mu.Lock()
		delete(l.streams, k)
		l.mu.Unlock()
	})
	l.offer(c)
	return nil
}

// offer has a stream accepted, or closes it.
func (l *Listener) offer(c net.Conn) {
	select {
	case <-l.done:
		c.Close()
	case l.queue <- c:
	default:
		l.log.Warn("accept queue is full", "peer", c.RemoteAddr())
		c.Close()
	}
}

// await waits for a stream whose later connection was faster than the first one.
func (l *Listener) await(k key) *Conn {
	limit := time.NewTimer(orphanTimeout)
	defer limit.Stop()
	for {
		l.mu.Lock()
		c, changed := l.streams[k], l.changed
		l.mu.Unlock()
		if c != nil {
			return c
		}
		select {
		case <-changed:
		case <-limit.C:
			return nil
		case <-l.done:
			return nil
		}
	}
}

// Accept returns the next stream: a *Conn, or a connection of the inner listener that is one alone.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *Listener) shut() { l.once.Do(func() { close(l.done) }) }

// Close ends Accept, and streams that nobody accepted. Others stay.
func (l *Listener) Close() error {
	err := l.inner.Close()
	l.shut()
	l.wg.Wait()
	for {
		select {
		case c := <-l.queue:
			c.Close()
		default:
			return err
		}
	}
}

func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// afterFunc runs f when done is closed, unless stop is called before.
func afterFunc(done <-chan struct{}, f func()) (stop func()) {
	stopped := make(chan struct{})
	go func() {
		select {
		case <-done:
			f()
		case <-stopped:
		}
	}()
	return func() { close(stopped) }
}
