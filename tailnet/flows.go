package tailnet

import (
	"net"
	"net/netip"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// The current Inbound policy of a peer determines what it may open. WireGuard binds the source address to the peer's
// key.

// admits reports whether a peer may open the port.
func (n *Node) admits(peer netip.Addr, port uint16) bool {
	from := n.peers.ip(peer)
	return from != nil && from.Inbound.Allows(port)
}

// admitsEcho reports whether a peer may send ICMP echo requests.
func (n *Node) admitsEcho(peer netip.Addr) bool {
	from := n.peers.ip(peer)
	return from != nil && from.Inbound.Any()
}

// allowed returns the peer at src if it may open dst, or nil.
func (n *Node) allowed(src, dst netip.AddrPort) *peer {
	if dst.Addr() != n.addr || n.closed.Load() {
		return nil
	}
	if from := n.peers.ip(src.Addr()); from != nil && from.Inbound.Allows(dst.Port()) {
		return from
	}
	return nil
}

// tcpFlow returns the handler for a TCP connection that a peer opens. nil refuses it.
func (n *Node) tcpFlow(src, dst netip.AddrPort) func(engine.Conn) {
	from := n.allowed(src, dst)
	if from == nil {
		return nil
	}
	var serve func(net.Conn)
	if l := n.listener(dst.Port()); l != nil {
		serve = l.deliver
	} else if choose := n.tcpHandler.Load(); choose != nil {
		var ok bool
		if serve, ok = (*choose)(src, dst); !ok {
			return nil
		}
	}
	if serve == nil {
		return nil
	}
	return func(raw engine.Conn) {
		if c := newTCPConn(raw, from.live, dst, src, true); c != nil {
			n.serve(c, serve)
		}
	}
}

// udpFlow is like tcpFlow, for the first packet of a UDP flow.
func (n *Node) udpFlow(src, dst netip.AddrPort) func(*engine.UDPConn) {
	from := n.allowed(src, dst)
	choose := n.udpHandler.Load()
	if from == nil || choose == nil {
		return nil
	}
	serve, ok := (*choose)(src, dst)
	if !ok || serve == nil {
		return nil
	}
	return func(raw *engine.UDPConn) {
		if c := newUDPConn(raw, from.live, dst, src, true); c != nil {
			n.serve(c, serve)
		}
	}
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

// spawn runs f on a goroutine that Close waits for. It does nothing if the node is closed.
func (n *Node) spawn(f func()) {
	n.handlersMu.Lock()
	defer n.handlersMu.Unlock()
	if !n.closed.Load() {
		n.handlers.Go(f)
	}
}

// HandleTCP sets the handler of TCP connections to ports that have no listener. choose is called with the peer's
// authenticated address and the node's own; it must not block. handle runs on its own goroutine, owns the connection,
// and must return soon after the connection is closed: Close waits for it. Without a handler, or if ok is false, the
// connection is refused. choose is called only for ports that the peer's Inbound policy allows.
func (n *Node) HandleTCP(choose func(src, dst netip.AddrPort) (handle func(net.Conn), ok bool)) {
	if choose == nil {
		n.tcpHandler.Store(nil)
		return
	}
	n.tcpHandler.Store(&choose)
}

// HandleUDP is like HandleTCP, for UDP flows. The net.Conn is the flow: each Read returns one datagram. The flow is
// closed after two minutes of silence; a peer can have at most 256 flows open.
func (n *Node) HandleUDP(choose func(src, dst netip.AddrPort) (handle func(net.Conn), ok bool)) {
	if choose == nil {
		n.udpHandler.Store(nil)
		return
	}
	n.udpHandler.Store(&choose)
}
