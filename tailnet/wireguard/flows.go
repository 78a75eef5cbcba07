package wireguard

import (
	"net"
	"net/netip"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

// admit reports whether a packet goes to the network stack. WireGuard has bound its source address to the peer's key.
func (g *Gateway) admit(packet []byte) bool {
	p, ok := ipstack.Parse(packet)
	if !ok || !p.Dst.Is6() || p.Dst.IsMulticast() || p.Dst.IsLinkLocalUnicast() || p.Dst.IsLoopback() ||
		p.Dst.IsUnspecified() {
		return false
	}
	switch p.Kind {
	case ipstack.Flow:
		return true
	case ipstack.EchoRequest:
		g.echo(p)
	}
	return false
}

func (g *Gateway) known(peer netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peers[peer] != nil
}

// begin makes room for another flow of a peer.
func (g *Gateway) begin(src netip.Addr) (*flow, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peers[src]
	if p == nil || len(p.flows) >= maxFlows {
		return nil, false
	}
	f := &flow{abort: func() {}}
	p.flows[f] = struct{}{}
	return f, true
}

// end forgets a flow.
func (g *Gateway) end(src netip.Addr, f *flow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.peers[src]; p != nil {
		delete(p.flows, f)
	}
}

// own says how to end a flow from now on. It returns false if the peer was removed meanwhile.
func (g *Gateway) own(src netip.Addr, f *flow, abort func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peers[src]
	if p == nil {
		return false
	}
	if _, ok := p.flows[f]; !ok {
		return false // another peer has the address now
	}
	f.abort = abort
	return true
}

func (g *Gateway) acceptTCP(src, dst netip.AddrPort) func(*ipstack.TCPConn) {
	if !g.opts.Prefix.Contains(dst.Addr()) {
		return nil
	}
	f, ok := g.begin(src.Addr())
	if !ok {
		return nil
	}
	serve := g.opts.AcceptTCP(src, dst)
	if serve == nil {
		g.end(src.Addr(), f)
		return nil
	}
	return func(c *ipstack.TCPConn) {
		defer g.end(src.Addr(), f)
		if c == nil {
			serve(nil)
			return
		}
		if !g.own(src.Addr(), f, c.Abort) {
			c.Abort()
		}
		serve(c)
	}
}

func (g *Gateway) acceptUDP(src, dst netip.AddrPort) func(*ipstack.UDPConn) {
	if !g.opts.Prefix.Contains(dst.Addr()) {
		return nil
	}
	f, ok := g.begin(src.Addr())
	if !ok {
		return nil
	}
	return func(c *ipstack.UDPConn) {
		defer g.end(src.Addr(), f)
		serve := g.opts.AcceptUDP(src, dst)
		if serve == nil {
			c.Close()
			g.link.Inject(ipstack.PortUnreachable(src, dst))
			return
		}
		if !g.own(src.Addr(), f, func() { c.Close() }) {
			c.Close()
		}
		serve(c)
	}
}

// echo answers an echo request if the owner wants that.
func (g *Gateway) echo(p ipstack.Packet) {
	if !g.opts.Prefix.Contains(p.Dst) {
		return
	}
	reply := p.EchoReply()
	if p.Dst == g.opts.Addr {
		g.link.Inject(reply)
		return
	}
	g.mu.Lock()
	from := g.peers[p.Src]
	ask := from != nil && from.echoes < maxPeerEchoes && g.echoes < maxEchoes
	if ask {
		from.echoes++
		g.echoes++
	}
	g.mu.Unlock()
	if !ask {
		return
	}
	go func() {
		ok := g.opts.Echo(p.Src, p.Dst)
		g.mu.Lock()
		from.echoes--
		g.echoes--
		g.mu.Unlock()
		if ok {
			g.link.Inject(reply)
		}
	}()
}

var (
	_ Conn     = (*ipstack.TCPConn)(nil)
	_ net.Conn = (*ipstack.UDPConn)(nil)
)
