// Package connlog tells the server which connections clients have to the workspace: sessions, and the use of ports. It
// also counts their bytes. It must not know what the connections carry.
package connlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// maxEntries bounds the visits that are open or not yet reported. More are served, and not reported.
	maxEntries = 4096
	// batchSize is how many visits one report has.
	batchSize = 256
	// gather is how long a report waits for more.
	gather = time.Second
	// callTimeout bounds one report.
	callTimeout = 15 * time.Second
	// linger is how long a visit of a port lasts without a connection: a browser opens and closes many.
	linger = 30 * time.Second
	// remeasure is how often the round trips to clients with open visits are measured after the first time.
	remeasure = 5 * time.Minute
	// measureTime bounds one measurement.
	measureTime = time.Second
	// maxTrips is how many round trips a visit keeps: the last ones.
	maxTrips = 64
)

// entry is a session of a client, or its use of one port, as the connection log has it.
type entry struct {
	id       uuid.UUID
	peer     netip.Addr // of the client in the mesh
	port     uint16     // 0 for sessions
	began    time.Time
	in, out  atomic.Int64
	log      *Log
	lastRead atomic.Pointer[error] // why reading ended

	// The Log's mutex guards the fields below.
	kind   agentpb.Connection_Kind
	ended  time.Time // zero while it is open
	reason string
	conns  int         // of a port
	idle   *time.Timer // ends a port without connections; nil while there are some
	way    agentpb.Path_Way
	far    string          // the client's end of a direct path
	trips  []time.Duration // to the client, the latest last
	rev    int             // grows with every change
	sent   int             // the rev that the server has
	// measured says that the round trip was measured, also if the client did not answer.
	measured bool
}

// RegionAddr is the address of a region proxy's node. The server records what comes from there, so a Log does not.
type RegionAddr struct{ net.Addr }

// Log has the clients' connections that are reported to the server. Its methods do not block, and a report never delays
// a session.
type Log struct {
	in, out atomic.Int64 // bytes of all connections, also of those that have no entry

	wake notify.Wake
	way  func(netip.Addr) (agentpb.Path_Way, string) // how packets to a client travel now
	trip Trips

	mu        sync.Mutex // guards the fields below, and the entries'
	all       map[uuid.UUID]*entry
	ports     map[portOf]*entry
	dropped   int
	closed    bool
	announced bool // the server knows that this process is new
}

type portOf struct {
	peer netip.Addr
	port uint16
}

// Trips measures the round trips to clients, until ctx ends at the latest. It leaves out clients that do not answer.
type Trips func(ctx context.Context, clients map[netip.Addr]bool) map[netip.Addr]time.Duration

// New returns an empty log. way returns how packets to a client travel now, and the client's end of a direct path.
// trips may be nil: then round trips are unknown.
func New(way func(netip.Addr) (agentpb.Path_Way, string), trips Trips) *Log {
	return &Log{way: way, trip: trips, wake: notify.NewWake(), all: map[uuid.UUID]*entry{}, ports: map[portOf]*entry{}}
}

// add begins a visit. It returns nil if there are too many. The caller holds the lock.
func (l *Log) add(kind agentpb.Connection_Kind, peer netip.Addr, port uint16) *entry {
	if l.closed || len(l.all) >= maxEntries {
		l.dropped++
		return nil
	}
	x := &entry{id: uuid.New(), peer: peer, port: port, began: time.Now(), log: l, kind: kind, rev: 1}
	l.all[x.id] = x
	l.wake.Poke()
	return x
}

// Counted returns a connection that counts its bytes and is no visit.
func (l *Log) Counted(conn net.Conn) net.Conn {
	return &counted{Conn: conn, entry: &entry{log: l}, end: func() {}}
}

// Session returns a connection for SSH sessions that counts its bytes, and is one visit, unless a region proxy brought
// it.
func (l *Log) Session(conn net.Conn) net.Conn {
	if _, region := conn.RemoteAddr().(RegionAddr); region {
		return conn // it is counted already
	}
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return conn // not of the mesh
	}
	l.mu.Lock()
	x := l.add(agentpb.Connection_KIND_SSH, peer.Addr(), 0)
	l.mu.Unlock()
	if x == nil {
		return l.Counted(conn)
	}
	l.locate(x)
	return &counted{Conn: conn, entry: x, end: func() { l.end(x, x.why(), time.Now()) }}
}

// Forwarded returns a connection to a port that counts its bytes, and belongs to the client's visit of that port.
func (l *Log) Forwarded(conn net.Conn, peer netip.Addr, port uint16) net.Conn {
	key := portOf{peer, port}
	x := l.enter(key)
	if x == nil {
		return l.Counted(conn)
	}
	l.locate(x)
	return &counted{Conn: conn, entry: x, end: func() { l.leave(key, x) }}
}

// enter begins one of a port's connections. It returns nil if there are too many visits.
func (l *Log) enter(key portOf) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.ports[key]
	if x == nil {
		if x = l.add(agentpb.Connection_KIND_PORT_FORWARDING, key.peer, key.port); x == nil {
			return nil
		}
		l.ports[key] = x
	}
	x.conns++
	if x.idle != nil {
		x.idle.Stop()
		x.idle = nil
	}
	return x
}

// leave ends one of a port's connections. The visit ends a while after its last one, with the time of that.
func (l *Log) leave(key portOf, x *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.conns--; x.conns > 0 || l.closed {
		return
	}
	at, reason := time.Now(), x.why()
	var idle *time.Timer
	idle = time.AfterFunc(linger, func() {
		l.mu.Lock()
		mine := x.idle == idle
		if mine {
			delete(l.ports, key)
		}
		l.mu.Unlock()
		if mine {
			l.end(x, reason, at)
		}
	})
	x.idle = idle
}

func (l *Log) end(x *entry, reason string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.ended.IsZero() {
		x.ended, x.reason = at, reason
		x.rev++
		l.wake.Poke()
	}
}

// Bytes returns how many bytes clients have sent and received on all connections.
func (l *Log) Bytes() (in, out int64) { return l.in.Load(), l.out.Load() }

// Close stops the timers. What has not been reported by now is not: the server ends the visits of an agent that is
// gone.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, x := range l.ports {
		if x.idle != nil {
			x.idle.Stop()
			x.idle = nil
		}
	}
}

// SetKind notes that a connection that Session returned is an editor's. It ignores other connections.
func SetKind(conn net.Conn, kind agentpb.Connection_Kind) {
	c, ok := conn.(*counted)
	if !ok {
		return
	}
	l := c.entry.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.entry.kind != kind {
		c.entry.kind = kind
		c.entry.rev++
		l.wake.Poke()
	}
}

// locate notes how packets to the client travel, if that is known. A client that has left the mesh has no path any
// more: what was noted last remains.
func (l *Log) locate(x *entry) {
	if !x.peer.IsValid() {
		return // it is not told
	}
	way, far := l.way(x.peer)
	if way == agentpb.Path_WAY_UNSPECIFIED {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x.way, x.far = way, far
}

// Run reports visits until ctx ends or a call fails with a temporary error. Reports do not wait for the round trips to
// clients: those of a new visit are in a report of their own.
func (l *Log) Run(ctx context.Context, client agentpbconnect.AgentServiceClient, logger *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	fresh := notify.NewWake() // some visits may not have been measured
	var measuring sync.WaitGroup
	measuring.Go(func() { l.measureWhile(ctx, fresh) })
	defer measuring.Wait()
	defer stop()
	for {
		if err := sleep(ctx, gather); err != nil { // visits that begin and end in the meantime are one report
			return err
		}
		fresh.Poke()
		batch, revs := l.take()
		if batch == nil {
			select {
			case <-l.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := client.Connections(call, connect.NewRequest(batch))
		cancel()
		switch connect.CodeOf(err) {
		case connect.CodeUnimplemented: // an older server
			<-ctx.Done()
			return ctx.Err()
		case connect.CodeInvalidArgument, connect.CodePermissionDenied:
			logger.Warn("report refused", "err", err)
			err = nil // it will never be stored
		}
		if err != nil {
			return fmt.Errorf("report connections: %w", err)
		}
		l.stored(revs)
	}
}

// measureWhile measures visits once fresh says that there are new ones, and all that are open from time to time, until
// ctx ends.
func (l *Log) measureWhile(ctx context.Context, fresh notify.Wake) {
	again := time.NewTicker(remeasure)
	defer again.Stop()
	for {
		select {
		case <-fresh:
			l.measure(ctx, func(x *entry) bool { return !x.measured })
		case <-again.C:
			l.measure(ctx, func(*entry) bool { return true })
		case <-ctx.Done():
			return
		}
	}
}

// measure notes the round trips to the clients of those open visits that which chooses. The lock is held while it is
// called. A visit whose median changes by more than a quarter is reported again.
func (l *Log) measure(ctx context.Context, which func(*entry) bool) {
	if l.trip == nil {
		return
	}
	l.mu.Lock()
	chosen, clients := []*entry{}, map[netip.Addr]bool{}
	for _, x := range l.all {
		if x.ended.IsZero() && x.peer.IsValid() && which(x) {
			chosen, clients[x.peer], x.measured = append(chosen, x), true, true
		}
	}
	l.mu.Unlock()
	if len(chosen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	trips := l.trip(ctx, clients)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range chosen {
		trip := trips[x.peer]
		if trip <= 0 || !x.ended.IsZero() {
			continue
		}
		before := x.latency()
		x.trips = append(x.trips[max(len(x.trips)+1-maxTrips, 0):], trip)
		if moved := x.latency() - before; moved.Abs() > before/4 {
			x.rev++
			l.wake.Poke()
		}
	}
}

// latency returns the median round trip to the client, 0 if it is unknown. The caller holds the log's lock.
func (x *entry) latency() time.Duration {
	if len(x.trips) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(x.trips))
	return sorted[len(sorted)/2]
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take returns the next report, or nil if the server knows everything, and which state of which visits it has.
func (l *Log) take() (*agentpb.ConnectionsRequest, map[*entry]int) {
	l.mu.Lock()
	open := slices.DeleteFunc(slices.Collect(maps.Values(l.all)),
		func(x *entry) bool { return x.rev == x.sent || !x.ended.IsZero() })
	l.mu.Unlock()
	for _, x := range open[:min(len(open), batchSize)] {
		l.locate(x)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	req, revs := &agentpb.ConnectionsRequest{First: !l.announced}, map[*entry]int{}
	for _, x := range l.all {
		if x.rev == x.sent || len(revs) == batchSize {
			continue
		}
		revs[x] = x.rev
		peer := x.peer.As16()
		c := &agentpb.Connection{
			Id: x.id[:], Kind: x.kind, PeerAddress: peer[:], Port: uint32(x.port),
			ConnectedAt: timestamppb.New(x.began), Reason: x.reason, Way: x.way, Endpoint: x.far,
			BytesIn: x.in.Load(), BytesOut: x.out.Load(), LatencyUs: x.latency().Microseconds(),
		}
		if !x.ended.IsZero() {
			c.DisconnectedAt = timestamppb.New(x.ended)
		}
		req.Connections = append(req.Connections, c)
	}
	if len(revs) == 0 && l.announced {
		return nil, nil
	}
	return req, revs
}

// stored notes that the server has a report.
func (l *Log) stored(revs map[*entry]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announced = true
	for x, rev := range revs {
		if x.sent = rev; x.rev == rev && !x.ended.IsZero() {
			delete(l.all, x.id)
		}
	}
}

// counted counts what travels on a connection.
type counted struct {
	net.Conn
	entry *entry
	end   func()
	once  sync.Once
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.entry.in.Add(int64(n))
	c.entry.log.in.Add(int64(n))
	if err != nil {
		c.entry.lastRead.Store(&err)
	}
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.entry.out.Add(int64(n))
	c.entry.log.out.Add(int64(n))
	return n, err
}

func (c *counted) Close() error {
	c.entry.log.locate(c.entry) // before the client leaves the mesh
	err := c.Conn.Close()
	c.once.Do(c.end)
	return err
}

// CloseWrite ends the sending side, as netio.CloseWrite does.
func (c *counted) CloseWrite() error { return netio.CloseWrite(c.Conn) }

// SetLinger is what netio.Abort calls.
func (c *counted) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return tcp.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

// why returns how a visit ended, by how reading ended.
func (x *entry) why() string {
	err := x.lastRead.Load()
	switch {
	case err == nil || errors.Is(*err, net.ErrClosed):
		return "closed by the workspace"
	case errors.Is(*err, io.EOF):
		return "closed by the client"
	}
	return (*err).Error()
}
