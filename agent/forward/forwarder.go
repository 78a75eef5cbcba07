package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/codermesh/codermesh/internal/netio"
)

const (
	dialTimeout = 10 * time.Second
	// maxTCP and maxUDP are how many forwarded streams and flows may be open at once, all peers together.
	maxTCP = 2048
	maxUDP = 512
)

// Options of a Forwarder. The zero value works.
type Options struct {
	Logger *slog.Logger // nil discards
}

// Forwarder serves connections to ports of the workspace that no service of the agent owns.
type Forwarder struct {
	log *slog.Logger
	tcp chan struct{}
	udp chan struct{}

	run    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

// New returns a Forwarder. Close it.
func New(opt Options) *Forwarder {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Forwarder{
		log: opt.Logger, conns: make(map[net.Conn]struct{}),
		tcp: make(chan struct{}, maxTCP), udp: make(chan struct{}, maxUDP),
	}
	f.run, f.cancel = context.WithCancel(context.Background())
	return f
}

// Close ends every forwarded connection and waits for them.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	f.closed = true
	for conn := range f.conns {
		conn.Close()
	}
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
	return nil
}

// TCP decides about a TCP connection to dst, in the form the mesh node wants. It does not block.
func (f *Forwarder) TCP(_, dst netip.AddrPort) (func(net.Conn), bool) {
	return func(conn net.Conn) { f.serve(conn, f.tcp, func() { f.serveTCP(conn, dst.Port()) }) }, dst.Port() != 0
}

// UDP decides about a UDP flow to dst, in the form the mesh node wants. It does not block.
func (f *Forwarder) UDP(_, dst netip.AddrPort) (func(net.Conn), bool) {
	return func(conn net.Conn) { f.serve(conn, f.udp, func() { f.serveUDP(conn, dst.Port()) }) }, dst.Port() != 0
}

func (f *Forwarder) serve(conn net.Conn, slots chan struct{}, serve func()) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		f.log.Warn("too many forwarded connections", "peer", conn.RemoteAddr())
		netio.Abort(conn)
		return
	}
	if !f.track(conn) {
		conn.Close()
		return
	}
	defer f.untrack(conn)
	serve()
}

func (f *Forwarder) track(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.conns[conn] = struct{}{}
	f.wg.Add(1)
	return true
}

func (f *Forwarder) untrack(conn net.Conn) {
	conn.Close()
	f.mu.Lock()
	delete(f.conns, conn)
	f.mu.Unlock()
	f.wg.Done()
}

func (f *Forwarder) serveTCP(conn net.Conn, port uint16) {
	local, err := DialLocal(f.run, port)
	if err != nil {
		f.log.Debug("forward refused", "addr", port, "err", err)
		netio.Abort(conn)
		return
	}
	if !f.track(local) {
		local.Close()
		return
	}
	defer f.untrack(local)
	netio.Pipe(conn, local)
}

var loopback = []string{"127.0.0.1", "::1"}

// DialLocal opens a TCP connection to a port of this host's loopback interface, over IPv4 if something listens there, else
// over IPv6. It takes at most 10 s.
func DialLocal(ctx context.Context, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	var errs error
	for _, host := range loopback {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, fmt.Errorf("dial port %d: %w", port, errs)
}
