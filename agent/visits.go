package agent

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
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// maxVisits bounds the visits that are open or not yet reported. More are served, and not reported.
	maxVisits = 4096
	// visitBatch is how many visits one report has.
	visitBatch = 256
	// gather is how long a report waits for more.
	gather = time.Second
	// linger is how long a visit of a port lasts without a connection: a browser opens and closes many.
	linger = 30 * time.Second
)

// visit is a session of a client, or its use of one port, as the connection log has it.
type visit struct {
	id       uuid.UUID
	peer     netip.Addr // of the client in the mesh
	port     uint16     // 0 for sessions
	began    time.Time
	in, out  atomic.Int64
	visits   *visits
	lastRead atomic.Pointer[error] // why reading ended

	// The visits' mutex guards the fields below.
	kind   agentpb.Connection_Kind
	ended  time.Time // zero while it is open
	reason string
	conns  int         // of a port
	idle   *time.Timer // ends a port without connections; nil while there are some
	way    agentpb.Path_Way
	far    string // the client's end of a direct path
	rev    int    // grows with every change
	sent   int    // the rev that the server has
}

// visits are the clients' connections that the server is told of. Its methods do not block, and a report never delays a session.
type visits struct {
	in, out atomic.Int64 // bytes of all connections, also of those that are no visits

	wake notify.Wake
	way  func(netip.Addr) (agentpb.Path_Way, string) // how packets to a client travel now

	mu      sync.Mutex // guards the fields below, and the visits'
	all     map[uuid.UUID]*visit
	ports   map[portOf]*visit
	dropped int
	closed  bool
	told    bool // the server knows that this process is new
}

type portOf struct {
	peer netip.Addr
	port uint16
}

func newVisits(way func(netip.Addr) (agentpb.Path_Way, string)) *visits {
	return &visits{way: way, wake: notify.NewWake(), all: map[uuid.UUID]*visit{}, ports: map[portOf]*visit{}}
}

// add begins a visit. It returns nil if there are too many. The caller holds the lock.
func (v *visits) add(kind agentpb.Connection_Kind, peer netip.Addr, port uint16) *visit {
	if v.closed || len(v.all) >= maxVisits {
		v.dropped++
		return nil
	}
	x := &visit{id: uuid.New(), peer: peer, port: port, began: time.Now(), visits: v, kind: kind, rev: 1}
	v.all[x.id] = x
	v.wake.Poke()
	return x
}

// counted returns a connection that counts its bytes and is no visit.
func (v *visits) counted(conn net.Conn) net.Conn {
	return &visitConn{Conn: conn, visit: &visit{visits: v}, end: func() {}}
}

// session returns a connection for SSH sessions that counts its bytes, and is one visit, unless a region proxy brought it.
func (v *visits) session(conn net.Conn) net.Conn {
	if _, region := conn.RemoteAddr().(regionAddr); region {
		return conn // it is counted already
	}
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return conn // not of the mesh
	}
	v.mu.Lock()
	x := v.add(agentpb.Connection_KIND_SSH, peer.Addr(), 0)
	v.mu.Unlock()
	if x == nil {
		return v.counted(conn)
	}
	v.locate(x)
	return &visitConn{Conn: conn, visit: x, end: func() { v.end(x, x.why(), time.Now()) }}
}

// forwarded returns a connection to a port that counts its bytes, and belongs to the client's visit of that port.
func (v *visits) forwarded(conn net.Conn, peer netip.Addr, port uint16) net.Conn {
	key := portOf{peer, port}
	x := v.enter(key)
	if x == nil {
		return v.counted(conn)
	}
	v.locate(x)
	return &visitConn{Conn: conn, visit: x, end: func() { v.leave(key, x) }}
}

// enter begins one of a port's connections. It returns nil if there are too many visits.
func (v *visits) enter(key portOf) *visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	x := v.ports[key]
	if x == nil {
		if x = v.add(agentpb.Connection_KIND_PORT_FORWARDING, key.peer, key.port); x == nil {
			return nil
		}
		v.ports[key] = x
	}
	x.conns++
	if x.idle != nil {
		x.idle.Stop()
		x.idle = nil
	}
	return x
}

// leave ends one of a port's connections. The visit ends a while after its last one, with the time of that.
func (v *visits) leave(key portOf, x *visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x.conns--; x.conns > 0 || v.closed {
		return
	}
	at, reason := time.Now(), x.why()
	var idle *time.Timer
	idle = time.AfterFunc(linger, func() {
		v.mu.Lock()
		mine := x.idle == idle
		if mine {
			delete(v.ports, key)
		}
		v.mu.Unlock()
		if mine {
			v.end(x, reason, at)
		}
	})
	x.idle = idle
}

func (v *visits) end(x *visit, reason string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x.ended.IsZero() {
		x.ended, x.reason = at, reason
		x.rev++
		v.wake.Poke()
	}
}

// close stops the timers. What has not been reported by now is not: the server ends the visits of an agent that is gone.
func (v *visits) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, x := range v.ports {
		if x.idle != nil {
			x.idle.Stop()
			x.idle = nil
		}
	}
}

// setKind notes that a connection is an editor's.
func setKind(conn net.Conn, kind agentpb.Connection_Kind) {
	c, ok := conn.(*visitConn)
	if !ok {
		return
	}
	v := c.visit.visits
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.visit.kind != kind {
		c.visit.kind = kind
		c.visit.rev++
		v.wake.Poke()
	}
}

// locate notes how packets to the client travel, if that is known. A client that has left the mesh has no path any more: what was noted last
// remains.
func (v *visits) locate(x *visit) {
	if !x.peer.IsValid() {
		return // it is not told
	}
	way, far := v.way(x.peer)
	if way == agentpb.Path_WAY_UNSPECIFIED {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	x.way, x.far = way, far
}

// run reports visits until ctx ends or a call fails with a temporary error.
func (v *visits) run(ctx context.Context, client agentpbconnect.AgentServiceClient, log *slog.Logger) error {
	for {
		if err := sleep(ctx, gather); err != nil { // visits that begin and end in the meantime are one report
			return err
		}
		batch, revs := v.take()
		if batch == nil {
			select {
			case <-v.wake:
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
			log.Warn("report refused", "err", err)
			err = nil // it will never be stored
		}
		if err != nil {
			return fmt.Errorf("report connections: %w", err)
		}
		v.stored(revs)
	}
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
func (v *visits) take() (*agentpb.ConnectionsRequest, map[*visit]int) {
	v.mu.Lock()
	open := slices.DeleteFunc(slices.Collect(maps.Values(v.all)), func(x *visit) bool { return x.rev == x.sent || !x.ended.IsZero() })
	v.mu.Unlock()
	for _, x := range open[:min(len(open), visitBatch)] {
		v.locate(x)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	req, revs := &agentpb.ConnectionsRequest{First: !v.told}, map[*visit]int{}
	for _, x := range v.all {
		if x.rev == x.sent || len(revs) == visitBatch {
			continue
		}
		revs[x] = x.rev
		peer := x.peer.As16()
		c := &agentpb.Connection{
			Id: x.id[:], Kind: x.kind, PeerAddress: peer[:], Port: uint32(x.port), ConnectedAt: timestamppb.New(x.began), Reason: x.reason, Way: x.way, Endpoint: x.far,
			BytesIn: x.in.Load(), BytesOut: x.out.Load(),
		}
		if !x.ended.IsZero() {
			c.DisconnectedAt = timestamppb.New(x.ended)
		}
		req.Connections = append(req.Connections, c)
	}
	if len(revs) == 0 && v.told {
		return nil, nil
	}
	return req, revs
}

// stored notes that the server has a report.
func (v *visits) stored(revs map[*visit]int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = true
	for x, rev := range revs {
		if x.sent = rev; x.rev == rev && !x.ended.IsZero() {
			delete(v.all, x.id)
		}
	}
}

// way returns how packets to a client travel, and the client's end of a direct path.
func (d *daemon) way(client netip.Addr) (agentpb.Path_Way, string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // only the state is needed, no round trip
	for _, p := range d.mesh.Measure(ctx, func(id uuid.UUID) bool { return tailnet.Addr(id) == client }) {
		switch p.Path {
		case tailnet.PathDirect:
			return agentpb.Path_WAY_DIRECT, p.Endpoint.String()
		case tailnet.PathRelay:
			return agentpb.Path_WAY_RELAY, ""
		}
	}
	return agentpb.Path_WAY_UNSPECIFIED, ""
}

// visitConn counts what travels on a connection.
type visitConn struct {
	net.Conn
	visit *visit
	end   func()
	once  sync.Once
}

func (c *visitConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.visit.in.Add(int64(n))
	c.visit.visits.in.Add(int64(n))
	if err != nil {
		c.visit.lastRead.Store(&err)
	}
	return n, err
}

func (c *visitConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.visit.out.Add(int64(n))
	c.visit.visits.out.Add(int64(n))
	return n, err
}

func (c *visitConn) Close() error {
	c.visit.visits.locate(c.visit) // before the client leaves the mesh
	err := c.Conn.Close()
	c.once.Do(c.end)
	return err
}

// CloseWrite ends the sending side, as netio.CloseWrite does.
func (c *visitConn) CloseWrite() error { return netio.CloseWrite(c.Conn) }

// SetLinger is what netio.Abort calls.
func (c *visitConn) SetLinger(sec int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		return tcp.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

// why returns how a visit ended, by how reading ended.
func (x *visit) why() string {
	err := x.lastRead.Load()
	switch {
	case err == nil || errors.Is(*err, net.ErrClosed):
		return "closed by the workspace"
	case errors.Is(*err, io.EOF):
		return "closed by the client"
	}
	return (*err).Error()
}
