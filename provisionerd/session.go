package provisionerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb/provisionerpbconnect"
)

const (
	protocolVersion = 2

	dialTimeout    = 30 * time.Second
	welcomeTimeout = 15 * time.Second
	pingEvery      = 5 * time.Second
	// silence is how long the server may send nothing on an open stream before the daemon considers the stream dead.
	silence = 15 * time.Second

	// refusedRetry is the minimum pause after a temporary refusal.
	refusedRetry = 5 * time.Second
	sayEvery     = time.Minute // how often the log warns about a server that stays unreachable
)

var (
	errSilent = errors.New("the server no longer answers")
	// errNotIntroduced is returned until the coordinator has introduced the server's node.
	errNotIntroduced = errors.New("not connected to the coordinator")
)

// session is one stream after its Welcome.
type session struct {
	// Guarded by Daemon.mu.
	control   []*provisionerpb.DaemonMessage // goes before events
	sent      map[leaseKey]uint64            // last event sent; lacks leases that are not confirmed yet
	offerable int                            // how many offers the server may make, as the daemon last reported

	rpc  provisionerpbconnect.ProvisionerServiceClient
	dead chan struct{} // closed when the stream has ended
}

// queueLocked adds a message that is not an event. Called with Daemon.mu held. The queue is bounded by what the server
// sends.
func (s *session) queueLocked(m *provisionerpb.DaemonMessage) { s.control = append(s.control, m) }

// serve keeps a session open until Stop, or until the server refuses the daemon for good.
func (d *Daemon) serve() {
	defer close(d.done)
	if err := d.recoverJournals(); err != nil {
		d.fail(fault.New(fault.Unavailable, "The provisioner's journal cannot be used: %w", err))
		return
	}
	d.mu.Lock()
	d.settled = true
	d.changed.Notify()
	d.mu.Unlock()
	var outage backoff.Outage
	var lastSaid time.Time
	for d.ctx.Err() == nil {
		began := time.Now()
		opened, err := d.converse(d.ctx)
		if d.ctx.Err() != nil {
			return
		}
		if opened {
			outage.Lost(began)
		}
		if refused, ok := errors.AsType[*refusedError](err); ok && !refused.retry {
			d.fail(fault.New(fault.Forbidden, "The server refuses this provisioner: %s", refused.reason))
			return
		}
		if errors.Is(err, errNotIntroduced) {
			d.log.Debug("no session with the server", "err", err) // the coordinator's client logs the reason
		} else if opened || time.Since(lastSaid) >= sayEvery {
			d.log.Warn("no session with the server, trying again", "err", err)
			lastSaid = time.Now()
		}
		pause := outage.Next()
		if _, ok := errors.AsType[*refusedError](err); ok {
			pause = max(pause, refusedRetry)
		}
		if backoff.Sleep(d.ctx, pause, nil) != nil {
			return
		}
	}
}

func (d *Daemon) fail(err error) {
	d.mu.Lock()
	d.err = err
	d.mu.Unlock()
	d.log.Error("provisioner cannot serve", "err", err)
}

// refusedError is the server's Refused.
type refusedError struct {
	reason string
	retry  bool
}

func (e *refusedError) Error() string { return "refused: " + e.reason }

// transport is one connection for the RPCs of one session. A dead transport must never be reused.
type transport struct {
	http *http.Transport
	conn net.Conn
}

func (d *Daemon) dial(ctx context.Context) (*transport, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.opts.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // the mesh encrypts
	var once sync.Once
	return &transport{conn: conn, http: &http.Transport{
		Protocols: protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			err := net.ErrClosed
			once.Do(func() { err = nil })
			return conn, err
		},
	}}, nil
}

func (t *transport) close() {
	t.conn.Close() // its error does not matter: the session is over
	t.http.CloseIdleConnections()
}

type stream = connect.BidiStreamForClient[provisionerpb.DaemonMessage, provisionerpb.ServerMessage]

// converse dials and serves one session to its end. opened is set after a Welcome.
func (d *Daemon) converse(ctx context.Context) (opened bool, err error) {
	t, err := d.dial(ctx)
	if err != nil {
		return false, err
	}
	defer t.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The end of ctx alone does not wake a reader whose request is still being written; the end of the connection does.
	closing := context.AfterFunc(ctx, t.close)
	defer closing()
	client := provisionerpbconnect.NewProvisionerServiceClient(&http.Client{Transport: t.http}, "http://server",
		connect.WithReadMaxBytes(maxMessage+1<<20), connect.WithAcceptCompression("gzip", nil, nil))
	st := client.Session(ctx)
	defer func() {
		t.close()
		_ = st.CloseResponse() // does not block now, and its error is known
	}()

	s := &session{sent: map[leaseKey]uint64{}, rpc: client, dead: make(chan struct{})}
	// The end of ctx ends a write or read that hangs.
	watch := time.AfterFunc(welcomeTimeout, func() { cancel(errSilent) })
	defer watch.Stop()
	welcome, err := d.greet(st)
	if err != nil {
		return false, explain(ctx, err)
	}
	watch.Reset(silence)
	d.enter(s, welcome)
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := d.write(ctx, s, st); err != nil {
			cancel(err)
		}
	})
	err = d.read(ctx, s, st, func() { watch.Reset(silence) })
	err = explain(ctx, err)
	cancel(err)
	t.close() // ends a write that hangs
	writer.Wait()
	d.leave(s)
	return true, err
}

// explain returns why the stream ended, if known.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// greet sends the hello and waits for the Welcome.
func (d *Daemon) greet(st *stream) (*provisionerpb.Welcome, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	hello := &provisionerpb.Hello{ProtocolVersion: protocolVersion, Version: buildinfo.Version(), Hostname: host,
		Executor: d.opts.Executor.Name()}
	d.each(func(l *lease) { hello.Leases = append(hello.Leases, l.describe()) })
	if err := st.Send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Hello{Hello: hello}}); broken(err) != nil {
		return nil, broken(err)
	}
	m, err := st.Receive()
	if err != nil {
		return nil, fmt.Errorf("wait for the welcome: %w", err)
	}
	if r := m.GetRefused(); r != nil {
		return nil, &refusedError{r.GetReason(), r.GetRetry()}
	}
	if m.GetWelcome() == nil {
		return nil, errors.New("wait for the welcome: the first message is none")
	}
	return m.GetWelcome(), nil
}

// broken returns the error of a failed Send, or nil if the reader receives the reason.
func broken(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("send to the server: %w", err)
}

// enter applies the Welcome and makes s the session.
func (d *Daemon) enter(s *session, w *provisionerpb.Welcome) {
	d.seenNow(w.GetGrace().AsDuration())
	d.mu.Lock()
	for _, ack := range w.GetAcks() {
		if key, err := keyOf(ack.GetJobId(), ack.GetEpoch()); err == nil {
			s.sent[key] = ack.GetSeq()
		}
	}
	d.session = s
	d.metrics.sessions.Inc()
	if !d.isReady {
		d.isReady = true
		close(d.ready)
	}
	d.changed.Notify()
	d.mu.Unlock()
	for _, r := range w.GetRevoked() {
		d.revoked(r)
	}
	for _, ack := range w.GetAcks() {
		d.acknowledged(ack)
	}
	d.log.Info("session with the server opened", "leases", len(w.GetAcks()), "revoked", len(w.GetRevoked()))
}

func (d *Daemon) leave(s *session) {
	close(s.dead)
	d.mu.Lock()
	d.session = nil
	d.changed.Notify()
	d.mu.Unlock()
}

// seenNow records that the server is alive, and sets how long leases outlive a stream unless grace is 0.
func (d *Daemon) seenNow(grace time.Duration) {
	d.mu.Lock()
	d.lastSeen = awake()
	if grace > 0 {
		d.grace = grace
	}
	d.mu.Unlock()
}

// read handles the server's messages until the stream ends.
func (d *Daemon) read(ctx context.Context, s *session, st *stream, alive func()) error {
	for {
		m, err := st.Receive()
		if err != nil {
			return fmt.Errorf("read from the server: %w", err)
		}
		alive()
		d.seenNow(0)
		switch m := m.GetMessage().(type) {
		case *provisionerpb.ServerMessage_Offer:
			if err := d.accept(s, m.Offer); err != nil {
				return err
			}
		case *provisionerpb.ServerMessage_Ack:
			d.confirm(s, m.Ack)
			d.acknowledged(m.Ack)
		case *provisionerpb.ServerMessage_Cancel:
			d.canceled(m.Cancel)
		case *provisionerpb.ServerMessage_Revoked:
			d.revoked(m.Revoked)
		case *provisionerpb.ServerMessage_Pong:
		case *provisionerpb.ServerMessage_Refused:
			return &refusedError{m.Refused.GetReason(), m.Refused.GetRetry()}
		default:
			d.log.Debug("ignoring message of a newer server")
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// confirm allows sending the events of a lease that was accepted on this stream.
func (d *Daemon) confirm(s *session, ack *provisionerpb.Ack) {
	key, err := keyOf(ack.GetJobId(), ack.GetEpoch())
	if err != nil {
		return // acknowledged logs it
	}
	d.mu.Lock()
	if _, ok := s.sent[key]; !ok {
		s.sent[key] = ack.GetSeq()
	}
	d.mu.Unlock()
}

func (d *Daemon) canceled(c *provisionerpb.Cancel) {
	l := d.leaseOf(c)
	if l == nil {
		return
	}
	l.log.Info("canceling job", "force", c.GetForce())
	l.askStop(true, "")
	if c.GetForce() {
		l.askForce()
	}
}

// write sends queued messages until ctx ends.
func (d *Daemon) write(ctx context.Context, s *session, st *stream) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	var nonce uint64
	for turn := 0; ; {
		m, l := d.next(s, turn)
		if l != nil {
			turn++
			event, err := l.next(d.sentOf(s, l))
			if err != nil {
				return err
			}
			if event != nil {
				m = &provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Event{Event: event}}
				d.mu.Lock()
				s.sent[l.key] = event.GetSeq()
				d.mu.Unlock()
			}
		}
		if m != nil {
			if err := st.Send(m); err != nil {
				return broken(err)
			}
			continue
		}
		if l != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-ping.C:
			nonce++
			if err := st.Send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ping{Ping: &provisionerpb.Ping{Nonce: nonce}}}); err != nil {
				return broken(err)
			}
		}
	}
}

func (d *Daemon) sentOf(s *session, l *lease) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.sent[l.key]
}

// next returns the next message: control messages first, then events, for which the leases take turns, then Ready if it
// has changed. Ready comes after all Accepts, so that the server counts slots as the daemon does.
func (d *Daemon) next(s *session, turn int) (*provisionerpb.DaemonMessage, *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(s.control) > 0 {
		m := s.control[0]
		s.control = s.control[1:]
		if m.GetAccept() != nil {
			s.offerable--
		}
		return m, nil
	}
	for i := range d.order {
		l := d.order[(turn+i)%len(d.order)]
		if sent, ok := s.sent[l.key]; ok && l.has(sent) {
			return nil, l
		}
	}
	free := len(d.slots) - d.busyLocked()
	if d.draining {
		free = 0
	}
	if free == s.offerable {
		return nil, nil
	}
	s.offerable = free
	return &provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: uint32(free)}}}, nil
}

// has reports whether there is an event after seq. Daemon.mu may be held.
func (l *lease) has(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := after(l.records, seq)
	return ok && !l.gone
}
