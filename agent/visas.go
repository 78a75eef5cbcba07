package agent

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/forward"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/visa"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// maxRegionConns bounds the connections of region proxies, and those to the workspace's ports for them.
	maxRegionConns = 2048
	// visaTimeout is how long a region proxy has to show its visa.
	visaTimeout = 10 * time.Second
)

// regionVisit is a visitor's use of a port, a terminal or SSH through a region proxy. It ends when its newest visa has expired.
type regionVisit struct {
	until time.Time
	end   *time.Timer
	conns map[net.Conn]struct{}
}

// regionVisits are the visits that are open. A proxy's node chooses nothing about them: its address is part of the key.
type regionVisits struct {
	mu   sync.Mutex
	open map[regionVisitID]*regionVisit
}

type regionVisitID struct {
	proxy netip.Addr
	visit uuid.UUID
	port  uint16 // TCP; 0 for a terminal, SSH or UDP
}

// regionAddr is the address of a region proxy's node. The server records what comes from there, so visits do not.
type regionAddr struct{ net.Addr }

// serveRegion serves a connection of a region proxy.
func (d *daemon) serveRegion(conn net.Conn) {
	v, verb, ok := d.inspect(conn)
	if !ok {
		netio.Abort(conn)
		return
	}
	remote, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		netio.Abort(conn)
		return
	}
	id := regionVisitID{remote.Addr(), v.Visit, v.Port}
	// A wrong clock, or a visa that was kept, does not prolong a visit.
	until := time.Now().Add(visa.Lifetime)
	if expires := time.Unix(v.Expires, 0).Add(visa.Leeway); expires.Before(until) {
		until = expires
	}
	if verb == visa.Renew {
		d.regionVisits.renew(id, until)
		conn.Close()
		return
	}
	leave := d.regionVisits.enter(id, conn, until)
	defer leave()
	conn = d.visits.counted(conn)
	if v.Terminal {
		d.serveTerminal(conn)
		return
	}
	if v.Service != 0 {
		d.serveRegionSSH(conn, v.Service)
		return
	}
	defer d.stats.begin(kindForward)()
	if v.UDP != 0 {
		defer conn.Close()
		d.forwards.ServeUDP(netio.Datagrams(conn), v.UDP)
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	local, err := forward.DialLocal(ctx, v.Port)
	if err != nil {
		d.log.Debug("cannot forward", "err", err)
		netio.Abort(conn)
		return
	}
	d.regionConns.Do(local, func() { netio.Pipe(conn, local) })
}

// serveRegionSSH passes a region proxy's connection on to what answers on one of the agent's SSH ports.
func (d *daemon) serveRegionSSH(conn net.Conn, service uint16) {
	to := d.sshClients
	if service == meshport.SSH {
		to = d.regionSSH
	}
	local, err := to.dial(regionAddr{conn.RemoteAddr()})
	if err != nil {
		d.log.Debug("cannot pass ssh of a region proxy on", "err", err)
		netio.Abort(conn)
		return
	}
	d.regionConns.Do(local, func() { netio.Pipe(conn, local) })
}

// inspect reads the request of a region proxy, and reports whether its visa is for this agent and from this node.
func (d *daemon) inspect(conn net.Conn) (v visa.Visa, verb visa.Verb, ok bool) {
	if err := conn.SetReadDeadline(time.Now().Add(visaTimeout)); err != nil {
		return v, verb, false
	}
	verb, token, err := visa.ReadRequest(conn)
	if err == nil {
		v, err = visa.Open(d.opts.Token.Hash(), token, time.Now())
	}
	if err == nil && (!isNode(conn.RemoteAddr(), v.Node) || !isNode(conn.LocalAddr(), v.Agent)) {
		err = visa.ErrInvalid
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		d.log.Warn("region proxy refused", "peer", conn.RemoteAddr(), "err", err)
	}
	return v, verb, err == nil
}

func isNode(addr net.Addr, id uuid.UUID) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr() == tailnet.Addr(id)
}

// enter adds a connection to a visit, which is cut when the visit ends. leave removes it.
func (r *regionVisits) enter(id regionVisitID, conn net.Conn, until time.Time) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.open[id]
	if x == nil {
		if r.open == nil {
			r.open = map[regionVisitID]*regionVisit{}
		}
		x = &regionVisit{conns: map[net.Conn]struct{}{}}
		r.open[id] = x
	}
	x.conns[conn] = struct{}{}
	r.prolong(id, x, until)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(x.conns, conn)
		if len(x.conns) == 0 && r.open[id] == x {
			x.end.Stop()
			delete(r.open, id)
		}
	}
}

func (r *regionVisits) renew(id regionVisitID, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.open[id]; x != nil {
		r.prolong(id, x, until)
	}
}

// prolong makes a visit last until a time, if it would end before. Called with mu held.
func (r *regionVisits) prolong(id regionVisitID, x *regionVisit, until time.Time) {
	if !until.After(x.until) {
		return
	}
	x.until = until
	if x.end != nil {
		x.end.Stop()
	}
	x.end = time.AfterFunc(time.Until(until), func() { r.expire(id, x, until) })
}

func (r *regionVisits) expire(id regionVisitID, x *regionVisit, until time.Time) {
	r.mu.Lock()
	if !x.until.Equal(until) || r.open[id] != x {
		r.mu.Unlock()
		return // it was prolonged just now, or has ended
	}
	delete(r.open, id)
	conns := x.conns
	x.conns = nil
	r.mu.Unlock()
	for conn := range conns {
		netio.Abort(conn)
	}
}
