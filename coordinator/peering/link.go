package peering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Table is what a Link needs of its server. Its methods are called from several goroutines.
type Table interface {
	// Collect appends to out what Take returns, and holds the table's lock meanwhile. A link that another one has
	// replaced gets nothing.
	Collect(l *Link, out []protocol.LinkMessage) []protocol.LinkMessage
	// Apply applies a message of the other server: present, gone, want, unwant, ready, punch or synced. It may block
	// until the relay has released a key. An error ends the link.
	Apply(l *Link, m protocol.LinkMessage) error
	// Process returns a function that asks whether the process that is connected here as a participant, with a key,
	// answers. The function blocks until the answer, at most for some seconds.
	Process(id uuid.UUID, key tailnet.PublicKey) func(context.Context) bool
}

// Reader reads the table for Take. Each method returns false if there is nothing to tell.
type Reader interface {
	// Participant returns present, or gone for a participant that is absent.
	Participant(id uuid.UUID) (protocol.LinkMessage, bool)
	// Subscription returns want or unwant.
	Subscription(l *Link, pair protocol.LinkPair) (protocol.LinkMessage, bool)
}

// Link is the connection to another server. Its methods are safe for concurrent use, and may be called with the table's
// lock held, except Serve and Probe.
type Link struct {
	server  uuid.UUID
	conn    protocol.Conn
	version int         // of the protocol of links
	wake    notify.Wake // for the writer
	ctx     context.Context
	cancel  context.CancelFunc
	since   time.Time

	sent, received   atomic.Uint64 // messages
	latest, shortest atomic.Int64  // round trips; 0 while unknown

	mu      sync.Mutex // guards everything below
	out     outbox
	asked   map[uint64]chan bool // probes in progress, by number
	probes  uint64               // asked so far
	probing int                  // probes of the other server in progress here
}

// New greets the server at the other end of conn. It blocks until that server has answered, protocol.DialTimeout at
// most. The caller has authenticated both ends, and closes conn after an error. The link ends with ctx; otherwise End
// or Serve must be called.
func New(ctx context.Context, server uuid.UUID, conn protocol.Conn) (*Link, error) {
	version, err := greet(ctx, conn)
	if err != nil {
		return nil, err
	}
	l := &Link{
		server: server, conn: conn, version: version, wake: notify.NewWake(), since: time.Now(),
		asked: make(map[uint64]chan bool),
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l, nil
}

// greet exchanges the hellos. It returns the version that both servers speak.
func greet(ctx context.Context, conn protocol.Conn) (version int, _ error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.DialTimeout)
	defer cancel()
	hello := protocol.LinkMessage{Hello: &protocol.LinkHello{Version: protocol.LinkVersion}}
	if err := conn.Write(ctx, protocol.Encode(hello)); err != nil {
		return 0, fmt.Errorf("send hello: %w", err)
	}
	data, err := conn.Read(ctx)
	if err != nil {
		return 0, fmt.Errorf("wait for hello: %w", err)
	}
	m, err := protocol.DecodeLinkMessage(data)
	switch {
	case err != nil:
		return 0, err
	case m.Hello == nil:
		return 0, errors.New("the first message is not a hello")
	case m.Hello.Version < protocol.MinLinkVersion:
		return 0, fmt.Errorf("the other server speaks version %d of the link protocol, this one needs %d or newer",
			m.Hello.Version, protocol.MinLinkVersion)
	}
	return min(m.Hello.Version, protocol.LinkVersion), nil
}

// Server returns the id of the other server.
func (l *Link) Server() uuid.UUID { return l.server }

// End ends the link: Serve returns soon.
func (l *Link) End() { l.cancel() }

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.ctx.Done() }

// Serve exchanges messages until the link ends, closes the connection, and waits for everything that it started. It
// returns why the link ended. Call it once.
func (l *Link) Serve(t Table, log *slog.Logger) error {
	var own sync.WaitGroup
	own.Go(func() { l.write(t, log) })
	own.Go(l.measure)
	err := l.read(t, &own)
	l.cancel()
	l.conn.Close(websock.StatusNormal, "")
	own.Wait()
	return err
}

// read handles what the other server sends, until the link ends. It returns the reason. Probes run on own.
func (l *Link) read(t Table, own *sync.WaitGroup) error {
	for {
		data, err := l.conn.Read(l.ctx)
		if err != nil {
			return err
		}
		l.received.Add(1)
		m, err := protocol.DecodeLinkMessage(data)
		if err != nil {
			return err
		}
		switch {
		case m.Hello != nil:
			err = errors.New("a second hello")
		case m.Probe != nil:
			err = l.answer(t, *m.Probe, own)
		case m.Probed != nil:
			l.answered(*m.Probed)
		default:
			err = t.Apply(l, m)
		}
		if err != nil {
			return err
		}
	}
}

// write sends what the table returns, until the link ends. It ends the link when it cannot send.
func (l *Link) write(t Table, log *slog.Logger) {
	var out []protocol.LinkMessage
	for {
		out = t.Collect(l, out[:0])
		for i := range out {
			if p := out[i].Present; p != nil {
				if err := p.Check(); err != nil { // it must not cost the link
					log.Error("cannot announce participant to other server", "peer", p.ID, "err", err)
					continue
				}
			}
			ctx, cancel := context.WithTimeout(l.ctx, protocol.WriteTimeout)
			err := l.conn.Write(ctx, protocol.Encode(out[i]))
			cancel()
			if err != nil {
				l.cancel()
				return
			}
			l.sent.Add(1)
		}
		if len(out) > 0 {
			continue
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
	}
}

// Take appends to out the next messages, which it reads from the table. Only Table.Collect calls it.
func (l *Link) Take(r Reader, out []protocol.LinkMessage) []protocol.LinkMessage {
	l.mu.Lock()
	departed, changed := l.out.departed.keys(batch), l.out.changed.keys(batch)
	l.mu.Unlock()
	for _, id := range departed {
		if m, ok := r.Participant(id); ok && m.Gone != nil {
			out = append(out, m)
		}
	}
	for _, id := range changed {
		if m, ok := r.Participant(id); ok && l.understands(m) {
			out = append(out, m)
		}
	}
	l.mu.Lock()
	if out = l.out.answers(out); len(out) > 0 {
		l.mu.Unlock()
		return out
	}
	pairs := l.out.pairs.keys(batch)
	l.mu.Unlock()
	for _, pair := range pairs {
		if m, ok := r.Subscription(l, pair); ok {
			out = append(out, m)
		}
	}
	if len(out) > 0 {
		return out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.last(out)
}

// understands reports whether the other server's version knows the kind of an announced participant.
func (l *Link) understands(m protocol.LinkMessage) bool {
	return m.Present == nil || m.Present.Kind != protocol.KindProxy || l.version >= protocol.LinkVersionProxies
}

// Changed notes that a participant of this server has changed or is gone.
func (l *Link) Changed(id uuid.UUID) { l.note(func(o *outbox) { o.changed.put(id, struct{}{}) }) }

// Departed notes that a participant of this server was gone before the link began.
func (l *Link) Departed(id uuid.UUID) { l.note(func(o *outbox) { o.departed.put(id, struct{}{}) }) }

// Subscribed notes that a participant of this server has begun or ended a subscription.
func (l *Link) Subscribed(pair protocol.LinkPair) {
	l.note(func(o *outbox) { o.pairs.put(pair, struct{}{}) })
}

// Ready notes that pair.From, of this server, knows the key of pair.To.
func (l *Link) Ready(pair protocol.LinkPair, key tailnet.PublicKey) {
	l.note(func(o *outbox) { o.ready.put(pair, key) })
}

// Punch notes an arranged hole punch.
func (l *Link) Punch(m protocol.LinkPunch) { l.note(func(o *outbox) { o.punches.put(m.LinkPair, m) }) }

func (l *Link) note(put func(*outbox)) {
	l.mu.Lock()
	put(&l.out)
	l.mu.Unlock()
	l.wake.Poke()
}
