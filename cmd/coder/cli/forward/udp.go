package forward

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

const (
	udpIdle     = 2 * time.Minute
	maxUDPFlows = 256
	maxDatagram = 64 << 10
	// maxWaiting bounds what all flows of a port hold until they are connected, in bytes.
	maxWaiting = 1 << 20
)

// ServeUDP forwards datagrams until the socket is closed, with one flow per local sender that ends after udpIdle of
// silence. A flow that is being connected delays no other one. When there are too many, one that was never answered
// gives way to a new sender, and those that were answered stay: UDP may lose datagrams.
func ServeUDP(ctx context.Context, socket net.PacketConn, dial func() (net.Conn, error), warn func(error)) {
	flows := udpFlows{open: map[string]*udpFlow{}}
	defer flows.wg.Wait()
	defer flows.closeAll()
	pause := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := socket.ReadFrom(buf)
		if err != nil {
			// Windows reports here that an earlier answer did not arrive.
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || pause.Wait(ctx) != nil {
				return
			}
			continue
		}
		pause.Reset()
		conn, fresh := flows.take(from.String(), buf[:n])
		if fresh != nil {
			flows.wg.Go(func() { flows.serve(ctx, fresh, socket, from, dial, warn) })
		}
		if conn != nil {
			_, _ = conn.Write(buf[:n])
		}
	}
}

// A udpFlow carries the datagrams of one local sender. The mutex of its udpFlows guards it.
type udpFlow struct {
	key      string
	conn     net.Conn    // nil while it is being connected
	idle     *time.Timer // likewise
	waiting  [][]byte    // until it is connected
	used     time.Time
	answered bool
}

type udpFlows struct {
	wg sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	open    map[string]*udpFlow
	waiting int // bytes, of all flows
	closed  bool
}

// take finds the flow of a sender, or makes one, which it returns as fresh. It returns the connection that takes the
// datagram; without one, the datagram waits, or is lost.
func (u *udpFlows) take(key string, datagram []byte) (conn net.Conn, fresh *udpFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f := u.open[key]
	if f == nil {
		if !u.makeRoom() {
			return nil, nil
		}
		f = &udpFlow{key: key}
		u.open[key], fresh = f, f
	}
	f.used = time.Now()
	if f.conn != nil {
		f.idle.Reset(udpIdle)
		return f.conn, nil
	}
	if u.waiting+len(datagram) <= maxWaiting {
		f.waiting = append(f.waiting, bytes.Clone(datagram))
		u.waiting += len(datagram)
	}
	return nil, fresh
}

// makeRoom ends the unanswered flow that was used longest ago if there are too many flows. Those that are being
// connected stay: ending them would not bound how many are. The mutex must be held.
func (u *udpFlows) makeRoom() bool {
	if len(u.open) < maxUDPFlows {
		return true
	}
	var oldest *udpFlow
	for _, f := range u.open {
		if f.conn != nil && !f.answered && (oldest == nil || f.used.Before(oldest.used)) {
			oldest = f
		}
	}
	if oldest == nil {
		return false
	}
	u.remove(oldest)
	return true
}

// remove ends a flow. The mutex must be held.
func (u *udpFlows) remove(f *udpFlow) {
	if u.open[f.key] == f {
		delete(u.open, f.key)
	}
	u.release(f)
	if f.conn != nil {
		f.idle.Stop()
		f.conn.Close()
	}
}

// release takes what waits for a flow's connection. The mutex must be held.
func (u *udpFlows) release(f *udpFlow) (waiting [][]byte) {
	waiting, f.waiting = f.waiting, nil
	for _, datagram := range waiting {
		u.waiting -= len(datagram)
	}
	return waiting
}

func (u *udpFlows) closeAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, f := range u.open {
		u.remove(f)
	}
}

// connected gives a flow its connection, and returns what has waited for it. It reports false if the flow has ended
// meanwhile.
func (u *udpFlows) connected(f *udpFlow, conn net.Conn) (waiting [][]byte, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, false
	}
	f.conn, f.idle = conn, time.AfterFunc(udpIdle, func() { conn.Close() })
	return u.release(f), true
}

// answered notes that the workspace has answered a flow.
func (u *udpFlows) answered(f *udpFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open[f.key] == f {
		f.answered, f.used = true, time.Now()
		f.idle.Reset(udpIdle)
	}
}

func (u *udpFlows) end(f *udpFlow) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(f)
}

// serve connects a flow, sends what has waited, and carries answers back to the sender until the flow is closed.
func (u *udpFlows) serve(ctx context.Context, f *udpFlow, socket net.PacketConn, to net.Addr, dial func() (net.Conn, error), warn func(error)) {
	defer u.end(f)
	conn, err := dial()
	if err != nil {
		if ctx.Err() == nil {
			warn(err)
		}
		return
	}
	waiting, ok := u.connected(f, conn)
	if !ok {
		conn.Close()
		return
	}
	for _, datagram := range waiting {
		_, _ = conn.Write(datagram)
	}
	buf := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		u.answered(f)
		if _, err := socket.WriteTo(buf[:n], to); errors.Is(err, net.ErrClosed) {
			return
		}
	}
}
