package engine

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sockets opens magicsock's UDP sockets and sets their options before they are used. magicsock's only hook for this is
// the option TestOnlyPacketListener.
//
// A machine that cannot open UDP sockets, because its kernel, its sandbox or Wine refuses them, reaches its peers
// through relays. magicsock does not begin without a socket for IPv4, so it gets one that carries nothing. It asks
// again when the network changes.
type sockets struct {
	log    *slog.Logger
	listen listenFunc
	v4, v6 atomic.Bool // there is such a socket
}

type listenFunc func(ctx context.Context, network, address string) (net.PacketConn, error)

func newSockets(log *slog.Logger, listen listenFunc) *sockets {
	if listen == nil {
		listen = (&net.ListenConfig{Control: allowFragments}).ListenPacket
	}
	return &sockets{log: log, listen: listen}
}

// ListenPacket is called by magicsock with its locks held: for IPv6 first, and for port 0 last.
func (s *sockets) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	state := &s.v4
	if network == "udp6" {
		state = &s.v6
	}
	conn, err := s.listen(ctx, network, address)
	state.Store(err == nil)
	if err == nil || network == "udp6" {
		return conn, err // without IPv6, magicsock goes on
	}
	if _, port, splitErr := net.SplitHostPort(address); splitErr == nil && port != "0" {
		return nil, err
	}
	if !s.open() {
		s.log.Warn("cannot open UDP sockets, all connections take the relay", "err", err)
	}
	return &deadSocket{closed: make(chan struct{})}, nil
}

// open reports whether there is a UDP socket.
func (s *sockets) open() bool { return s.v4.Load() || s.v6.Load() }

// deadSocket is a UDP socket that drops what is sent and receives nothing until it is closed.
type deadSocket struct {
	once   sync.Once
	closed chan struct{}
}

func (d *deadSocket) ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error) {
	<-d.closed
	return 0, netip.AddrPort{}, net.ErrClosed
}

func (d *deadSocket) ReadFrom([]byte) (int, net.Addr, error) {
	<-d.closed
	return 0, nil, net.ErrClosed
}

func (d *deadSocket) WriteToUDPAddrPort(b []byte, _ netip.AddrPort) (int, error) { return len(b), nil }
func (d *deadSocket) WriteTo(b []byte, _ net.Addr) (int, error)                  { return len(b), nil }

func (d *deadSocket) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// LocalAddr returns port 0: see Engine.endpoints.
func (d *deadSocket) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4zero} }

func (d *deadSocket) SetDeadline(time.Time) error      { return nil }
func (d *deadSocket) SetReadDeadline(time.Time) error  { return nil }
func (d *deadSocket) SetWriteDeadline(time.Time) error { return nil }

func (d *deadSocket) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }
