package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/netio"
)

const (
	dialTimeout = 10 * time.Second
	// maxTCP and maxUDP bound the forwarded streams and flows of all peers together.
	maxTCP = 2048
	maxUDP = 512
)

// Options configures a Forwarder. The zero value works.
type Options struct {
	Logger *slog.Logger // nil discards
}

// Forwarder serves connections to ports of the workspace that no service of the agent owns.
type Forwarder struct {
	log      *slog.Logger
	tcp, udp *connset.Set // connections with peers
	local    *connset.Set // connections with the workspace's ports

	run    context.Context // ends with Close
	cancel context.CancelFunc
}

// New returns a Forwarder. The caller must close it.
func New(opts Options) *Forwarder {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Forwarder{log: opts.Logger, local: connset.New(connset.Options{})}
	refuse := func(conn net.Conn) {
		f.log.Warn("too many forwarded connections", "peer", conn.RemoteAddr())
		netio.Abort(conn)
	}
	f.tcp = connset.New(connset.Options{Limit: maxTCP, Refused: refuse})
	f.udp = connset.New(connset.Options{Limit: maxUDP, Refused: refuse})
	f.run, f.cancel = context.WithCancel(context.Background())
	return f
}

// Close ends every forwarded connection and waits for them.
func (f *Forwarder) Close() error {
	f.cancel()
	return errors.Join(f.local.Close(), f.tcp.Close(), f.udp.Close())
}

// TCP returns the handler of a TCP connection to dst, in the form that the mesh node's HandleTCP needs. It does not
// block.
func (f *Forwarder) TCP(_, dst netip.AddrPort) (func(net.Conn), bool) {
	return func(conn net.Conn) { f.tcp.Do(conn, func() { f.serveTCP(conn, dst.Port()) }) }, dst.Port() != 0
}

// UDP returns the handler of a UDP flow to dst, in the form that the mesh node's HandleUDP needs. It does not block.
func (f *Forwarder) UDP(_, dst netip.AddrPort) (func(net.Conn), bool) {
	return func(conn net.Conn) { f.udp.Do(conn, func() { f.ServeUDP(conn, dst.Port()) }) }, dst.Port() != 0
}

func (f *Forwarder) serveTCP(conn net.Conn, port uint16) {
	local, err := DialLocal(f.run, port)
	if err != nil {
		f.log.Debug("cannot forward", "err", err)
		netio.Abort(conn)
		return
	}
	f.local.Do(local, func() { netio.Pipe(conn, local) })
}

var loopback = []string{"127.0.0.1", "::1"}

// DialLocal opens a TCP connection to a port of this host's loopback interface, over IPv4 if something listens there,
// else over IPv6. It takes at most 10 s.
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
