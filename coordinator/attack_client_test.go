package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// hostileConn is a connection to a server that sends what it likes, as fast as it is read.
type hostileConn struct {
	next   func(n int) protocol.ServerMessage
	n      atomic.Int64
	closed chan struct{}
}

func (h *hostileConn) Read(ctx context.Context) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-h.closed:
		return nil, errors.New("closed")
	default:
	}
	return []byte(encoded(h.next(int(h.n.Add(1) - 1)))), nil
}

func (h *hostileConn) Write(context.Context, []byte) error { return nil }

func (h *hostileConn) Close(websock.Status, string) error {
	select {
	case <-h.closed:
	default:
		close(h.closed)
	}
	return nil
}

// hostileConns are the connections of a participant.
type hostileConns struct {
	mu    sync.Mutex
	conns []*hostileConn
}

func (h *hostileConns) add(c *hostileConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
}

func (h *hostileConns) all() []*hostileConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.conns)
}

// hostileServer welcomes a participant, and sends what next returns from then on.
func hostileServer(p coordinator.Principal, next func(n int) protocol.ServerMessage) (client.DialFunc, *hostileConns) {
	conns := new(hostileConns)
	return func(context.Context, protocol.Hello) (protocol.Conn, error) {
		c := &hostileConn{closed: make(chan struct{}), next: func(n int) protocol.ServerMessage {
			if n == 0 {
				return protocol.ServerMessage{Welcome: &protocol.Welcome{Version: protocol.Version, ID: p.ID, Relays: relayMap(), GraceSeconds: 600}}
			}
			return next(n)
		}}
		conns.add(c)
		return c, nil
	}, conns
}

func introduce(n uint64, kind protocol.Kind) protocol.ServerMessage {
	return protocol.ServerMessage{Peer: &protocol.PeerUpdate{Info: info(laptop(n), key(n), n), Kind: kind, Ack: true}}
}

// TestTooManyPeers: a server that introduces peers without end makes a laptop leave, and say why. An agent drops the connection, and holds a bounded
// number of peers however often it returns.
func TestTooManyPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		endless := func(kind protocol.Kind) func(n int) protocol.ServerMessage {
			return func(n int) protocol.ServerMessage { return introduce(uint64(1000+n), kind) }
		}
		dial, _ := hostileServer(laptop(1), endless(protocol.KindAgent))
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: dial})
		<-c.Done()
		if err := c.Err(); fault.CodeOf(err) != fault.Invalid || err.Error() != "the server introduced more than 256 peers, which no session needs" {
			t.Errorf("the client left with %v", err)
		}
		if n := c.node.Load().count(); n != 0 {
			t.Errorf("%d peers after it has left", n)
		}

		var total atomic.Int64
		dial, conns := hostileServer(agent(1), func(int) protocol.ServerMessage {
			return introduce(uint64(1000+total.Add(1)), protocol.KindClient)
		})
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: dial})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := a.node.Load().count(); n != 4096 {
			t.Errorf("the agent has %d peers, want 4096", n)
		}
		if n := len(conns.all()); n < 2 || a.Err() != nil {
			t.Errorf("%d connections, %v; want that the agent returns", n, a.Err())
		}
	})
}

// TestChangesAtFullSpeed: a server that changes peers as fast as it can keeps a laptop or an agent busy a few hundred times a second, not all the time.
func TestChangesAtFullSpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for kind, who := range map[protocol.Kind]coordinator.Principal{protocol.KindClient: laptop(1), protocol.KindAgent: agent(1)} {
			dial, conns := hostileServer(who, func(n int) protocol.ServerMessage {
				return introduce(uint64(1000+n%7), protocol.KindServer)
			})
			k := key(100)
			if kind == protocol.KindClient {
				k = key(1)
			}
			p := join(t, kind, k, client.Options{Dial: dial})
			synctest.Wait()
			before := conns.all()[0].n.Load()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if n := conns.all()[0].n.Load() - before; n < 1000 || n > 4000 {
				t.Errorf("a %s handled %d messages in ten seconds", kind, n)
			}
			p.Close()
		}
	})
}
