// Package websock is the project's websocket: text messages of limited size, no compression, pings that detect a dead
// connection, and faults that carry the server's own message when it refuses the upgrade.
//
// It does not interpret messages. It is the only importer of the websocket library, so replacing the library changes
// this package only.
package websock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	// DefaultReadLimit bounds a message, in bytes, unless the options set another limit.
	DefaultReadLimit = 32 << 10
	// DefaultPingInterval is how long the other side may be silent before it is pinged. A connection that leaves two
	// pings in a row unanswered is dead. Each side's ping counts as a sign of life for the other, so an idle connection
	// carries one ping per interval.
	DefaultPingInterval = 15 * time.Second

	missedPings  = 2
	minGrowth    = 4 << 10 // of ReadInto's buffer, in bytes
	maxReason    = 123     // bytes: a close frame's payload is 125, two of them are the status
	closeTimeout = 2 * time.Second
)

// Status is a close code of RFC 6455 §7.4.
type Status int

const (
	StatusNormal      = Status(websocket.StatusNormalClosure)
	StatusGoingAway   = Status(websocket.StatusGoingAway)
	StatusUnsupported = Status(websocket.StatusUnsupportedData)
	StatusPolicy      = Status(websocket.StatusPolicyViolation)
	StatusTooBig      = Status(websocket.StatusMessageTooBig)
	StatusInternal    = Status(websocket.StatusInternalError)
	StatusTryAgain    = Status(websocket.StatusTryAgainLater)
)

var (
	// ErrTooBig is returned by reads of a message beyond the read limit. The connection is closed then.
	ErrTooBig = websocket.ErrMessageTooBig
	// ErrDead is the cause of a read or write that failed because pings stayed unanswered.
	ErrDead = errors.New("the other side no longer answers")
	// ErrNotText is returned by reads when a binary message arrives. The connection is closed then.
	ErrNotText = errors.New("binary message on a text connection")
)

// CloseError reports the other side's close frame.
type CloseError struct {
	Status Status
	Reason string
}

func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("connection closed by the other side (%d)", e.Status)
	}
	return fmt.Sprintf("connection closed by the other side (%d): %s", e.Status, e.Reason)
}

// Conn is one websocket. Only one goroutine may read at a time; everything else is safe for concurrent use. A goroutine
// must always be reading, because only reads notice pongs and close frames.
type Conn struct {
	ws       *websocket.Conn
	began    time.Time
	lastSeen atomic.Int64 // nanoseconds from began to the last message, ping or pong; the wall clock may jump
	dead     atomic.Bool  // pings stayed unanswered

	stopPing context.CancelFunc
	pinger   sync.WaitGroup
	closing  sync.Once
}

// open makes c, whose callbacks the library has, the wrapper of ws. A zero interval means DefaultPingInterval, a
// negative one no pings. delay postpones this side's pings, to leave them to the other side.
func (c *Conn) open(ws *websocket.Conn, readLimit int64, interval, delay time.Duration) {
	if readLimit == 0 {
		readLimit = DefaultReadLimit
	}
	ws.SetReadLimit(readLimit)
	ctx, cancel := context.WithCancel(context.Background())
	c.ws, c.began, c.stopPing = ws, time.Now(), cancel
	if interval > 0 {
		c.pinger.Go(func() { c.ping(ctx, interval, delay) })
	}
}

// orDefault returns the interval of a connection's pings.
func orDefault(interval time.Duration) time.Duration {
	if interval == 0 {
		return DefaultPingInterval
	}
	return interval
}

// Read returns the next text message. It blocks until there is one, ctx ends (then the connection is closed) or the
// connection ends, with a *CloseError if the other side closed it, ErrTooBig, ErrNotText, ErrDead, or an I/O error.
func (c *Conn) Read(ctx context.Context) ([]byte, error) {
	kind, data, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		c.Close(StatusUnsupported, "text messages only")
		return nil, ErrNotText
	}
	return data, nil
}

// ReadAny is like Read, but also accepts binary messages.
func (c *Conn) ReadAny(ctx context.Context) ([]byte, error) {
	_, data, err := c.read(ctx)
	return data, err
}

// ReadInto is like ReadAny, but reads into buf from its beginning, or into a larger buffer if the message is longer
// than its capacity.
func (c *Conn) ReadInto(ctx context.Context, buf []byte) ([]byte, error) {
	_, r, err := c.ws.Reader(ctx)
	if err != nil {
		return nil, c.explain("read message", err)
	}
	buf = buf[:0]
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(minGrowth, len(buf)))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			c.seen()
			return buf, nil
		}
		if err != nil {
			return nil, c.explain("read message", err)
		}
	}
}

func (c *Conn) read(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, data, err := c.ws.Read(ctx)
	if err != nil {
		return 0, nil, c.explain("read message", err)
	}
	c.seen()
	return kind, data, nil
}

// WriteBinary sends data as one binary message. It blocks as Write does.
func (c *Conn) WriteBinary(ctx context.Context, data []byte) error {
	if err := c.ws.Write(ctx, websocket.MessageBinary, data); err != nil {
		return c.explain("write message", err)
	}
	return nil
}

// Write sends data as one text message. It blocks until the system has accepted the data. If ctx ends first the
// connection is closed.
func (c *Conn) Write(ctx context.Context, data []byte) error {
	if err := c.ws.Write(ctx, websocket.MessageText, data); err != nil {
		return c.explain("write message", err)
	}
	return nil
}

// ReadJSON reads the next message into v.
func (c *Conn) ReadJSON(ctx context.Context, v any) error {
	data, err := c.Read(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return nil
}

// WriteJSON sends v as one message.
func (c *Conn) WriteJSON(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	return c.Write(ctx, data)
}

// Ping blocks until the other side has answered a ping, or ctx or the connection ends.
func (c *Conn) Ping(ctx context.Context) error {
	if err := c.ws.Ping(ctx); err != nil {
		return c.explain("ping", err)
	}
	c.seen()
	return nil
}

// LastSeen returns when the other side last sent a message or a ping, or answered one.
func (c *Conn) LastSeen() time.Time { return c.began.Add(time.Duration(c.lastSeen.Load())) }

// Close sends the status and a reason (truncated to 123 bytes), gives the other side at most two seconds to answer, and
// releases the connection. It is idempotent, and unblocks reads and writes.
func (c *Conn) Close(status Status, reason string) error {
	c.closing.Do(func() {
		c.stopPing()
		// The library waits up to ten seconds for an answer; a dead peer must not block the caller that long.
		timer := time.AfterFunc(closeTimeout, func() { _ = c.ws.CloseNow() })
		defer timer.Stop()
		c.ws.Close(websocket.StatusCode(status), cutReason(reason))
	})
	c.pinger.Wait()
	return nil
}

// CloseNow releases the connection without a closing handshake. It is idempotent, and unblocks reads and writes.
func (c *Conn) CloseNow() error {
	c.closing.Do(func() {
		c.stopPing()
		_ = c.ws.CloseNow()
	})
	c.pinger.Wait()
	return nil
}

// NetConn returns the connection as a stream of bytes in binary messages of any size. It ends with ctx. The Conn must
// not be used afterwards.
func (c *Conn) NetConn(ctx context.Context) net.Conn {
	c.stopPing()
	c.pinger.Wait()
	return websocket.NetConn(ctx, c.ws, websocket.MessageBinary)
}

func (c *Conn) seen() { c.lastSeen.Store(int64(time.Since(c.began))) }

// pinged and ponged are called by the library, on the reader's goroutine.
func (c *Conn) pinged(context.Context, []byte) bool { c.seen(); return true }
func (c *Conn) ponged(context.Context, []byte)      { c.seen() }

// ping pings when nothing has arrived for interval and delay, until ctx ends. It closes the connection if missedPings
// in a row stay unanswered.
func (c *Conn) ping(ctx context.Context, interval, delay time.Duration) {
	timer := time.NewTimer(interval + delay)
	defer timer.Stop()
	for missed := 0; missed < missedPings; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if rest := interval + delay - time.Since(c.LastSeen()); rest > 0 {
			missed = 0
			timer.Reset(rest)
			continue
		}
		once, cancel := context.WithTimeout(ctx, interval)
		err := c.ws.Ping(once)
		cancel()
		switch {
		case err == nil:
			missed = 0
			c.seen()
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return // closed: the reader gets the reason
		default:
			missed++
		}
		timer.Reset(0)
	}
	c.dead.Store(true)
	_ = c.ws.CloseNow()
}

func (c *Conn) explain(doing string, err error) error {
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		return &CloseError{Status(ce.Code), ce.Reason}
	}
	if c.dead.Load() {
		return fmt.Errorf("%s: %w", doing, ErrDead)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: connection cut: %w", doing, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// cutReason truncates reason to fit a close frame without splitting a rune.
func cutReason(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	cut := 0
	for i := range reason {
		if i > maxReason {
			break
		}
		cut = i
	}
	return reason[:cut]
}
