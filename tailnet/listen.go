package tailnet

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// acceptBacklog is how many established connections wait for Accept; more are closed.
const acceptBacklog = 128

// listener queues connections to one port. It is not the network stack's listener, which knows neither policies nor
// peers.
type listener struct {
	node  *Node
	addr  netip.AddrPort
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen accepts TCP connections on the node's own address. RemoteAddr of an accepted connection is the mesh address of
// the peer whose key carried it. The port must not be 0 and must not have a listener.
func (n *Node) Listen(port uint16) (net.Listener, error) {
	l := &listener{
		node: n, addr: netip.AddrPortFrom(n.addr, port),
		queue: make(chan net.Conn, acceptBacklog), done: make(chan struct{}),
	}
	n.listenersMu.Lock()
	defer n.listenersMu.Unlock()
	switch {
	case n.closed.Load():
		return nil, fmt.Errorf("listen on %s: %w", l.addr, ErrClosed)
	case port == 0:
		return nil, fmt.Errorf("listen on %s: port must not be 0", l.addr)
	case n.listeners[port] != nil:
		return nil, fmt.Errorf("listen on %s: port is in use", l.addr)
	}
	n.listeners[port] = l
	return l, nil
}

func (n *Node) listener(port uint16) *listener {
	n.listenersMu.Lock()
	defer n.listenersMu.Unlock()
	return n.listeners[port]
}

func (l *listener) deliver(c net.Conn) {
	select {
	case <-l.done:
		c.Close()
		return
	default:
	}
	select {
	case l.queue <- c:
	default:
		l.node.log.Warn("accept queue is full", "addr", l.addr, "peer", c.RemoteAddr())
		c.Close()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close unblocks Accept and closes every connection that has not been accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.node.listenersMu.Lock()
		if l.node.listeners[l.addr.Port()] == l {
			delete(l.node.listeners, l.addr.Port())
		}
		l.node.listenersMu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.queue:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }
