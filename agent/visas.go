package agent

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/connlog"
	"github.com/codermesh/codermesh/v2/agent/forward"
	"github.com/codermesh/codermesh/v2/agent/visit"
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
	id := visit.ID{Proxy: remote.Addr(), Visit: v.Visit, Port: v.Port}
	// A wrong clock, or a visa that was kept, does not prolong a visit.
	until := time.Now().Add(visa.Lifetime)
	if expires := time.Unix(v.Expires, 0).Add(visa.Leeway); expires.Before(until) {
		until = expires
	}
	if verb == visa.Renew {
		d.regionVisits.Renew(id, until)
		conn.Close()
		return
	}
	leave := d.regionVisits.Enter(id, conn, until)
	defer leave()
	conn = d.connections.Counted(conn)
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
	local, err := to.dial(connlog.RegionAddr{Addr: conn.RemoteAddr()})
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
