package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"

	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// Each device may ask perSecond times in a second, after a burst: a page names dozens of hosts.
	perSecond, burst = 50, 300
	// maxLimits bounds the devices whose questions are counted. It is forgotten who has asked how often when there are
	// more.
	maxLimits = 4096
)

// names answers devices' questions about names, as meshdns.Server does, and counts them.
type names struct {
	*Gateway
	server *meshdns.Server

	mu     sync.Mutex // guards the field below
	limits map[netip.Addr]*rate.Limiter
}

func newNames(g *Gateway) *names {
	server := meshdns.New(meshdns.Options{Prefix: tailnet.Prefix, Resolvers: g.opts.Resolvers, Logger: g.log})
	return &names{Gateway: g, server: server, limits: map[netip.Addr]*rate.Limiter{}}
}

// serveUDP answers the questions of a flow, until it is silent. It closes the flow.
func (n *names) serveUDP(c net.Conn, from netip.Addr) { n.serve(n.server.ServeUDP, c, from) }

// serveTCP answers the questions of a connection, until it is silent. It closes the connection.
func (n *names) serveTCP(c net.Conn, from netip.Addr) { n.serve(n.server.ServeTCP, c, from) }

func (n *names) serve(serve func(context.Context, net.Conn, func() meshdns.Directory), c net.Conn, from netip.Addr) {
	if !n.enter() {
		c.Close()
		return
	}
	defer n.serving.Done()
	serve(n.run, c, func() meshdns.Directory { return n.directory(from) })
}

// directory returns what a device may know for its next question, or nil if it may not ask.
func (n *names) directory(from netip.Addr) meshdns.Directory {
	known, d := n.device(from)
	if known == nil || !n.allow(from) {
		return nil
	}
	return directory{n.opts.House, d}
}

// directory is what a device may know.
type directory struct {
	house  House
	device Device
}

// Find returns the address of the agent that a name means to the device.
func (d directory) Find(ctx context.Context, name string) (netip.Addr, error) {
	return d.house.Find(ctx, d.device, name)
}

// Host returns the name of the agent that has an address.
func (d directory) Host(ctx context.Context, addr netip.Addr) (string, error) {
	return d.house.Host(ctx, d.device, addr)
}

// allow counts a question of a device.
func (n *names) allow(from netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	limit := n.limits[from]
	if limit == nil {
		if len(n.limits) >= maxLimits {
			clear(n.limits)
		}
		limit = rate.NewLimiter(perSecond, burst)
		n.limits[from] = limit
	}
	return limit.Allow()
}
