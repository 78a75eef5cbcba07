package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// flow is a sender in the first namespace and its receiver in the second.
type flow interface {
	bytes() int64 // that have arrived
	close()
}

func newFlow(kind, a, b string, port int) (flow, error) {
	switch kind {
	case "stream":
		return newStream(a, b, port)
	case "call":
		return newCall(a, b, port)
	}
	return newTCP(a, b, port)
}

// base is what flows have in common.
type base struct {
	got    atomic.Int64
	closed []io.Closer
	wg     sync.WaitGroup
}

func (f *base) bytes() int64 { return f.got.Load() }

func (f *base) close() {
	for _, c := range f.closed {
		_ = c.Close() // it may have ended
	}
	f.wg.Wait()
}

// drain counts what arrives.
func (f *base) drain(r io.Reader) {
	buf := make([]byte, 128<<10)
	for {
		n, err := r.Read(buf)
		f.got.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// push writes zeros until the other end closes.
func push(w io.Writer) {
	buf := make([]byte, 128<<10)
	for {
		if _, err := w.Write(buf); err != nil {
			return
		}
	}
}

// newTCP starts a connection of the kernel's TCP with CUBIC.
func newTCP(a, b string, port int) (flow, error) {
	f := &base{}
	addr := fmt.Sprintf("%s:%d", addrB, port)
	var l net.Listener
	var conn net.Conn
	ctx := context.Background()
	if err := slowlink.In(b, func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp4", addr)
		return err
	}); err != nil {
		return nil, err
	}
	f.closed = append(f.closed, l)
	f.wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		f.drain(c)
	})
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if err := c.Control(func(fd uintptr) { err = useCUBIC(int(fd)) }); err != nil {
			return err
		}
		return err
	}}
	if err := slowlink.In(a, func() (err error) {
		conn, err = dialer.DialContext(ctx, "tcp4", addr)
		return err
	}); err != nil {
		f.close()
		return nil, err
	}
	f.closed = append(f.closed, conn)
	f.wg.Go(func() { push(conn) })
	return f, nil
}

// streamBuffer is the size of UDP sockets' buffers, as the mesh asks for them.
const streamBuffer = 7 << 20

// newMux starts one end of streams.
func (f *base) newMux(
	namespace, self, other string, port int, accept func(*stream.Conn),
) (*stream.Mux, netip.Addr, error) {
	var conn *net.UDPConn
	local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(self), uint16(port)))
	if err := slowlink.In(namespace, func() (err error) {
		conn, err = net.ListenUDP("udp4", local)
		return err
	}); err != nil {
		return nil, netip.Addr{}, err
	}
	_ = conn.SetReadBuffer(streamBuffer) // the system's limit may be lower
	_ = conn.SetWriteBuffer(streamBuffer)
	to, peer := netip.AddrPortFrom(netip.MustParseAddr(other), uint16(port)), netip.MustParseAddr(other)
	m := stream.New(stream.Options{
		Admit:  func(netip.Addr, uint16) bool { return true },
		Accept: func(_ netip.Addr, _ uint16, c *stream.Conn) func() { return func() { accept(c) } },
		Header: func([]byte, netip.Addr) int { return 0 },
		Finish: func([]byte) {},
	})
	m.Add(peer, stream.Group{})
	done := make(chan struct{})
	f.closed = append(f.closed, closer(func() { m.Close(); close(done) }), conn)
	f.wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			m.Receive(peer, [][]byte{buf[:n]})
		}
	})
	f.wg.Go(func() {
		bufs, sizes := make([][]byte, 64), make([]int, 64)
		for i := range bufs {
			bufs[i] = make([]byte, 2048)
		}
		for {
			select {
			case <-m.Ready():
			case <-done:
				return
			}
			for i := range m.Fill(bufs, sizes, 0) {
				_, _ = conn.WriteToUDPAddrPort(bufs[i][:sizes[i]], to) // as if the path had lost it
			}
		}
	})
	return m, peer, nil
}

type closer func()

func (c closer) Close() error { c(); return nil }

// newStream starts a stream.
func newStream(a, b string, port int) (flow, error) {
	f := &base{}
	if _, _, err := f.newMux(b, addrB, addrA, port, func(c *stream.Conn) { f.drain(c) }); err != nil {
		return nil, err
	}
	m, peer, err := f.newMux(a, addrA, addrB, port, func(c *stream.Conn) { c.Abort() })
	if err != nil {
		f.close()
		return nil, err
	}
	c, err := m.Dial(peer, 1)
	if err != nil {
		f.close()
		return nil, err
	}
	f.wg.Go(func() { push(c) })
	return f, nil
}

const (
	// callEvery is how often a call sends a picture, of callPieces packets of callSize bytes: 1.5 Mbit/s.
	callEvery  = 20 * time.Millisecond
	callPieces = 3
	callSize   = 1250
)

// call is a stream of UDP packets at a constant rate.
type call struct {
	base

	mu    sync.Mutex // guards all below
	first uint64     // number of the first packet that counts
	sent  uint64     // number of the next
	trips []time.Duration
}

func newCall(a, b string, port int) (flow, error) {
	c := &call{}
	var in, out *net.UDPConn
	to := &net.UDPAddr{IP: net.ParseIP(addrB), Port: port}
	if err := slowlink.In(b, func() (err error) {
		in, err = net.ListenUDP("udp4", to)
		return err
	}); err != nil {
		return nil, err
	}
	c.closed = append(c.closed, in)
	if err := slowlink.In(a, func() (err error) {
		out, err = net.DialUDP("udp4", nil, to)
		return err
	}); err != nil {
		c.close()
		return nil, err
	}
	c.closed = append(c.closed, out)
	begun := time.Now()
	c.wg.Go(func() {
		buf := make([]byte, callSize)
		for next := begun; ; next = next.Add(callEvery) {
			time.Sleep(time.Until(next)) // this is the call's rate
			for range callPieces {
				c.mu.Lock()
				number := c.sent
				c.sent++
				c.mu.Unlock()
				binary.BigEndian.PutUint64(buf, number)
				binary.BigEndian.PutUint64(buf[8:], uint64(time.Since(begun)))
				if _, err := out.Write(buf); err != nil {
					return
				}
			}
		}
	})
	c.wg.Go(func() {
		buf := make([]byte, callSize)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			c.got.Add(int64(n))
			trip := time.Since(begun) - time.Duration(binary.BigEndian.Uint64(buf[8:]))
			c.mu.Lock()
			if binary.BigEndian.Uint64(buf) >= c.first {
				c.trips = append(c.trips, trip)
			}
			c.mu.Unlock()
		}
	})
	return c, nil
}

// reset begins a measurement.
func (c *call) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first, c.trips = c.sent, nil
}

// result returns what percentage of packets was lost, but for those still on the wire, and how many ms longer than the
// wire they took.
func (c *call) result() (lost, wait float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const under = 2 * callPieces // what is on the wire, by half its round trip
	sent := c.sent - c.first
	if len(c.trips) == 0 {
		return 100, 0
	}
	lost = 100 * max(0, float64(sent)-under-float64(len(c.trips))) / float64(sent)
	slices.Sort(c.trips)
	return lost, (c.trips[len(c.trips)*95/100] - trip/2).Seconds() * 1e3
}
