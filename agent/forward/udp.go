package forward

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// udpIdle is how long a UDP flow may be silent in both directions.
	udpIdle     = 2 * time.Minute
	maxDatagram = 64 << 10 // bytes
)

var datagrams = sync.Pool{New: func() any { return new([maxDatagram]byte) }}

// ServeUDP carries the datagrams of one flow until it has been idle for two minutes, or an end fails. If the port
// refuses a datagram on IPv4, it tries IPv6 with the same datagram. The caller closes the peer's end.
func (f *Forwarder) ServeUDP(peer net.Conn, port uint16) {
	var last []byte
	for _, host := range loopback {
		local, err := net.Dial("udp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil {
			f.log.Debug("cannot forward", "err", err)
			continue
		}
		flow := &udpFlow{peer: peer, local: local, last: last}
		refused := false
		f.local.Do(local, func() { refused = flow.run() })
		if !refused {
			return
		}
		last = flow.last
	}
}

// udpFlow is one peer's flow joined with one local socket.
type udpFlow struct {
	peer, local net.Conn
	done        atomic.Bool  // one direction has ended, so the other must end too
	active      atomic.Int64 // time of the latest datagram, in Unix nanoseconds

	mu       sync.Mutex // guards the fields below
	last     []byte     // the latest datagram from the peer until the local side answered
	answered bool
}

// run carries datagrams until the flow is idle or either side fails. refused is set if nothing listened on the local
// side.
func (u *udpFlow) run() (refused bool) {
	if u.last != nil {
		if _, err := u.local.Write(u.last); err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
	}
	var wg sync.WaitGroup
	var refusedRead bool
	wg.Go(func() {
		refusedRead = u.copy(u.peer, u.local, false)
		u.wake(u.peer)
	})
	refusedWrite := u.copy(u.local, u.peer, true)
	u.wake(u.local)
	wg.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	return (refusedRead || refusedWrite) && !u.answered
}

// wake ends the Read of the other direction without closing its connection: the flow may continue over IPv6. The flag
// is set first, because that direction may be about to move its deadline.
func (u *udpFlow) wake(conn net.Conn) {
	u.done.Store(true)
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed connection, whose Read fails too
}

func (u *udpFlow) copy(dst, src net.Conn, fromPeer bool) (refused bool) {
	buf := datagrams.Get().(*[maxDatagram]byte)
	defer datagrams.Put(buf)
	u.active.Store(time.Now().UnixNano())
	for {
		until := time.Unix(0, u.active.Load()).Add(udpIdle)
		if src.SetReadDeadline(until) != nil || u.done.Load() || time.Now().After(until) {
			return false
		}
		n, err := src.Read(buf[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // the other direction may have been active
		}
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		u.active.Store(time.Now().UnixNano())
		u.note(buf[:n], fromPeer)
		if _, err := dst.Write(buf[:n]); err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
	}
}

func (u *udpFlow) note(datagram []byte, fromPeer bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !fromPeer:
		u.answered, u.last = true, nil
	case !u.answered:
		u.last = append(u.last[:0], datagram...)
	}
}
