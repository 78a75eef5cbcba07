package tailnet

import (
	"net"
	"net/netip"

	"go4.org/netipx"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"tailscale.com/net/packet"
	"tailscale.com/types/ipproto"
	"tailscale.com/types/nettype"
	"tailscale.com/wgengine/filter"
)

// Two gates stand before whatever a peer opens, and both ask the peer's current Inbound policy: the packet filter, and the
// handlers of new flows. The source address either of them sees is bound to the peer's key by WireGuard.

// installFilter puts the packet filter before the node's network stack. It has no static rule: its one hook decides about
// everything that is no answer. A new filter forgets which UDP flows the node itself opened.
func (n *Node) installFilter() {
	var self netipx.IPSetBuilder
	self.Add(n.addr)
	local, err := self.IPSet()
	if err != nil {
		panic(err) // a set of one valid address
	}
	f := filter.New(nil, nil, local, nil, nil, n.logf)
	f.IngressAllowHooks = []filter.PacketMatch{n.admit}
	n.engine.SetFilter(f)
}

// forgetFlows makes what a peer keeps sending on an answered UDP flow subject to its policy again.
func (n *Node) forgetFlows() { n.installFilter() }

func (n *Node) admit(p packet.Parsed) (ok bool, why string) {
	if p.Dst.Addr() != n.addr {
		return false, ""
	}
	from := n.peers.ip(p.Src.Addr())
	if from == nil {
		return false, ""
	}
	switch p.IPProto {
	case ipproto.TCP, ipproto.UDP:
		return from.Inbound.Allows(p.Dst.Port()), "inbound policy"
	case ipproto.ICMPv6:
		return p.IsEchoRequest() && from.Inbound.Any(), "ping"
	}
	return false, ""
}

// allowed is the peer that may open dst, or nil.
func (n *Node) allowed(src, dst netip.AddrPort) *peer {
	if dst.Addr() != n.addr || n.closed.Load() {
		return nil
	}
	if from := n.peers.ip(src.Addr()); from != nil && from.Inbound.Allows(dst.Port()) {
		return from
	}
	return nil
}

// tcpFlow decides about a TCP connection that a peer opens. It always intercepts: a flow that is left to the network stack
// is forwarded to the host, which would make every peer a guest on its loopback interface and in its networks.
func (n *Node) tcpFlow(src, dst netip.AddrPort) (handle func(net.Conn), intercept bool) {
	from := n.allowed(src, dst)
	if from == nil {
		return nil, true
	}
	var serve func(net.Conn)
	if l := n.listener(dst.Port()); l != nil {
		serve = l.deliver
	} else if choose := n.tcpHandler.Load(); choose != nil {
		var ok bool
		if serve, ok = (*choose)(src, dst); !ok {
			return nil, true
		}
	}
	if serve == nil {
		return nil, true
	}
	return func(raw net.Conn) {
		tcp, ok := raw.(*gonet.TCPConn)
		if !ok {
			raw.Close()
			return
		}
		if c := newTCPConn(tcp, from.live, dst, src, true); c != nil {
			n.serve(c, serve)
		}
	}, true
}

// udpFlow is tcpFlow for the first packet of a UDP flow.
func (n *Node) udpFlow(src, dst netip.AddrPort) (handle func(nettype.ConnPacketConn), intercept bool) {
	from := n.allowed(src, dst)
	choose := n.udpHandler.Load()
	if from == nil || choose == nil {
		return nil, true
	}
	serve, ok := (*choose)(src, dst)
	if !ok || serve == nil {
		return nil, true
	}
	return func(raw nettype.ConnPacketConn) {
		udp, ok := raw.(*gonet.UDPConn)
		if !ok {
			raw.Close()
			return
		}
		if c := newUDPConn(udp, from.live, dst, src, true); c != nil {
			n.serve(c, serve)
		}
	}, true
}

// serve runs a handler on the stack's goroutine. Close waits for it.
func (n *Node) serve(c net.Conn, handle func(net.Conn)) {
	n.handlersMu.Lock()
	if n.closed.Load() {
		n.handlersMu.Unlock()
		c.Close()
		return
	}
	n.handlers.Add(1)
	n.handlersMu.Unlock()
	defer n.handlers.Done()
	handle(c)
}

// spawn runs f on a goroutine, which Close waits for; not at all when the node is closed.
func (n *Node) spawn(f func()) {
	n.handlersMu.Lock()
	defer n.handlersMu.Unlock()
	if !n.closed.Load() {
		n.handlers.Go(f)
	}
}

// HandleTCP sets who serves TCP connections to ports that have no listener. choose is called with the peer's authenticated
// address and the node's own; it must not block. handle runs on its own goroutine, owns the connection, and must return
// soon after the connection is closed: Close waits for it. Without a handler, or if ok is false, the connection is
// refused. Only ports that the peer's Inbound policy allows come here.
func (n *Node) HandleTCP(choose func(src, dst netip.AddrPort) (handle func(net.Conn), ok bool)) {
	if choose == nil {
		n.tcpHandler.Store(nil)
		return
	}
	n.tcpHandler.Store(&choose)
}

// HandleUDP is HandleTCP for UDP flows. The net.Conn is the flow: a Read is one datagram. It is closed after two minutes of
// silence; a peer has at most 256 flows open.
func (n *Node) HandleUDP(choose func(src, dst netip.AddrPort) (handle func(net.Conn), ok bool)) {
	if choose == nil {
		n.udpHandler.Store(nil)
		return
	}
	n.udpHandler.Store(&choose)
}
