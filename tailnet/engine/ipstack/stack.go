package ipstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	nicID = 1

	defaultSendBuffer = 1 << 20
	defaultRecvBuffer = 2 << 20
	// firstSendBuffer is how many bytes a new connection accepts from its writer before the path has room for them. The
	// stack lets it grow to twice the congestion window. A larger buffer would withhold bytes from other connections of
	// a stream.
	firstSendBuffer = 64 << 10

	// maxHandshakes and maxPeerHandshakes limit the TCP handshakes that await an answer, over all peers and per peer.
	maxHandshakes     = 1024
	maxPeerHandshakes = 64

	// Keepalives detect peers that have forgotten the connection: after 25 idle minutes, then every minute. Nine
	// unanswered ones (the stack's default) end the connection. A peer that vanished is removed earlier, a quarter of
	// an hour after its coordinator connection ended. A keepalive wakes the path: it costs a handshake and 45 seconds
	// of magicsock's pings, so it is rarer than the heartbeats of idle agents (coderd/agents).
	keepaliveIdle     = 25 * time.Minute
	keepaliveInterval = time.Minute
)

// Limits on TCP's retransmission. By default the stack, like most others, doubles the pause between two attempts up to
// two minutes and gives up after 15: a connection would stay silent for as long again as the path was down.
const (
	// minRTO is twice the stack's default. On a long path and a busy machine, half of the default's timeouts fired
	// before an answer that was merely late, and each of them restarts from one packet.
	minRTO = 400 * time.Millisecond
	// maxRTO is the longest pause between two retransmissions. A longer round trip causes needless retransmissions.
	maxRTO = time.Second
	// maxRetries allows half an hour of retransmissions: longer than a laptop sleeps between two trains.
	maxRetries = uint64(30 * time.Minute / maxRTO)
)

// Options configures a Stack. Admit, AcceptTCP and AcceptUDP are required.
type Options struct {
	Addr netip.Addr // the stack's own address, IPv6
	// Others are addresses for which the stack answers too, and which it may be asked to call from. The zero value
	// means none.
	Others netip.Prefix
	// SendBuffer and RecvBuffer limit what one TCP connection keeps in flight, in bytes. 0 means 1 MiB and 2 MiB.
	SendBuffer, RecvBuffer int
	Log                    *slog.Logger

	// Admit reports whether a connection or flow may begin. One that may not gets no answer. It must not block.
	Admit func(src, dst netip.AddrPort) bool
	// AcceptTCP returns the handler of a connection, or nil to refuse it. Both run on a goroutine of their own: while
	// AcceptTCP blocks, the other end waits for the answer to its SYN. The handler gets nil if the other end does not
	// complete the handshake.
	AcceptTCP func(src, dst netip.AddrPort) func(*TCPConn)
	// AcceptUDP returns the handler of a flow, to be run on its own goroutine, or nil to refuse the flow. It must not
	// block.
	AcceptUDP func(src, dst netip.AddrPort) func(*UDPConn)
}

// Stack is a network stack in user space.
type Stack struct {
	opts       Options
	stack      *stack.Stack
	handshakes handshakes
}

// New creates a network stack on a link. The caller must close the link and then the stack.
//
// Congestion control is Cubic, which unlike Reno leaves slow start when round trips grow, before it has lost a window's
// worth of packets: docs/decisions/0015-long-paths.md has the figures. Its window overflows an integer some weeks after
// a connection's last loss; the timeout that follows corrects it. RACK is off: with it, the stack retransmits packets
// that are merely late.
func New(l *Link, opts Options) (*Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	send, recv := opts.SendBuffer, opts.RecvBuffer
	if send == 0 {
		send = defaultSendBuffer
	}
	if recv == 0 {
		recv = defaultRecvBuffer
	}
	send, recv = max(send, tcp.MinBufferSize), max(recv, tcp.MinBufferSize)
	var (
		sack     = tcpip.TCPSACKEnabled(true)
		recovery = tcpip.TCPRecovery(0)
		control  = tcpip.CongestionControlOption("cubic")
		shortest = tcpip.TCPMinRTOOption(minRTO)
		longest  = tcpip.TCPMaxRTOOption(maxRTO)
		retries  = tcpip.TCPMaxRetriesOption(maxRetries)
		tx       = tcpip.TCPSendBufferSizeRangeOption{
			Min: tcp.MinBufferSize, Default: min(send, firstSendBuffer), Max: send,
		}
		rx = tcpip.TCPReceiveBufferSizeRangeOption{
			Min: tcp.MinBufferSize, Default: min(recv, tcp.DefaultReceiveBufferSize), Max: recv,
		}
	)
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &recovery, &control, &shortest, &longest, &retries, &tx, &rx} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, fmt.Errorf("set TCP option %T: %s", option, err)
		}
	}
	if err := s.CreateNIC(nicID, l); err != nil {
		return nil, fmt.Errorf("create network interface: %s", err)
	}
	if opts.Others.IsValid() {
		if err := errors.Join(failed(s.SetPromiscuousMode(nicID, true)), failed(s.SetSpoofing(nicID, true))); err != nil {
			return nil, fmt.Errorf("answer for other addresses: %w", err)
		}
	}
	own := tcpip.ProtocolAddress{
		Protocol:          ipv6.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom16(opts.Addr.As16()), PrefixLen: 128},
	}
	if err := s.AddProtocolAddress(nicID, own, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("set address: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv6EmptySubnet, NIC: nicID}})
	made := &Stack{
		opts: opts, stack: s,
		handshakes: handshakes{open: make(map[stack.TransportEndpointID]bool), perPeer: make(map[tcpip.Address]int)},
	}
	made.handleFlows()
	return made, nil
}

func failed(err tcpip.Error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.String())
}

// Close ends all connections and waits for the stack's goroutines. The link must be closed before: the stack sends a
// FIN on every connection and would wait for room in the queue.
func (s *Stack) Close() {
	s.stack.Close()
	s.stack.Wait()
}

// handleFlows makes the stack ask about packets that belong to no connection.
func (s *Stack) handleFlows() {
	accept := tcp.NewForwarder(s.stack, 0, maxHandshakes, s.acceptTCP)
	s.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
		if !s.opts.Admit(ends(id)) {
			return true // drop it: a peer must not learn which ports are open
		}
		if !s.handshakes.begin(id) {
			return true
		}
		handled := accept.HandlePacket(id, p)
		if !handled {
			s.handshakes.end(id)
		}
		return handled
	})
	flows := udp.NewForwarder(s.stack, s.acceptUDP)
	s.stack.SetTransportProtocolHandler(udp.ProtocolNumber, func(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
		if !s.opts.Admit(ends(id)) {
			return true
		}
		return flows.HandlePacket(id, p)
	})
}

// ends returns the two ends of a flow: the other one, and this one.
func ends(id stack.TransportEndpointID) (src, dst netip.AddrPort) {
	return netip.AddrPortFrom(addrOf(id.RemoteAddress), id.RemotePort), netip.AddrPortFrom(addrOf(id.LocalAddress),
		id.LocalPort)
}

// handshakes counts the TCP handshakes that peers have started.
type handshakes struct {
	mu      sync.Mutex
	open    map[stack.TransportEndpointID]bool
	perPeer map[tcpip.Address]int
}

// begin records a handshake. It returns true for packets of a handshake already recorded, and false if there are too
// many.
func (h *handshakes) begin(id stack.TransportEndpointID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[id] {
		return true
	}
	if h.perPeer[id.RemoteAddress] >= maxPeerHandshakes {
		return false
	}
	h.open[id] = true
	h.perPeer[id.RemoteAddress]++
	return true
}

func (h *handshakes) end(id stack.TransportEndpointID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open[id] {
		return
	}
	delete(h.open, id)
	if h.perPeer[id.RemoteAddress]--; h.perPeer[id.RemoteAddress] == 0 {
		delete(h.perPeer, id.RemoteAddress)
	}
}

// acceptTCP serves one connection, on its own goroutine.
func (s *Stack) acceptTCP(r *tcp.ForwarderRequest) {
	id := r.ID()
	defer s.handshakes.end(id)
	src, dst := ends(id)
	serve := s.opts.AcceptTCP(src, dst)
	if serve == nil {
		r.Complete(true)
		return
	}
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue) // blocks for the handshake
	if err != nil {
		s.opts.Log.Debug("handshake with peer failed", "peer", src, "err", err.String())
		r.Complete(true)
		s.handshakes.end(id)
		serve(nil)
		return
	}
	r.Complete(false)
	s.handshakes.end(id)
	serve(newTCPConn(&queue, ep))
}

func (s *Stack) acceptUDP(r *udp.ForwarderRequest) bool {
	id := r.ID()
	src, dst := ends(id)
	serve := s.opts.AcceptUDP(src, dst)
	if serve == nil {
		return false // the stack reports the closed port by ICMP
	}
	var queue waiter.Queue
	ep, err := r.CreateEndpoint(&queue)
	if err != nil {
		s.opts.Log.Debug("cannot accept flow", "peer", src, "err", err.String())
		return true
	}
	go serve(&UDPConn{gonet.NewUDPConn(&queue, ep)})
	return true
}

// TCPConn is a TCP connection with a peer.
type TCPConn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
}

func newTCPConn(queue *waiter.Queue, ep tcpip.Endpoint) *TCPConn {
	idle, interval := tcpip.KeepaliveIdleOption(keepaliveIdle), tcpip.KeepaliveIntervalOption(keepaliveInterval)
	for _, option := range []tcpip.SettableSocketOption{&idle, &interval} {
		if err := ep.SetSockOpt(option); err != nil {
			panic("keepalive refused: " + err.String()) // constants
		}
	}
	ep.SocketOptions().SetKeepAlive(true)
	return &TCPConn{gonet.NewTCPConn(queue, ep), ep}
}

// Abort ends the connection with a reset and discards unacknowledged data. After Close alone, the stack keeps
// retransmitting its FIN for as long as it would wait for any other answer.
func (c *TCPConn) Abort() { c.ep.Abort() }

// Over reports whether the stack has stopped sending for the connection.
func (c *TCPConn) Over() bool {
	switch tcp.EndpointState(c.ep.State()) {
	case tcp.StateClose, tcp.StateError, tcp.StateTimeWait, tcp.StateInitial:
		return true
	}
	return false
}

// UDPConn is a UDP flow with a peer.
type UDPConn struct{ *gonet.UDPConn }

// DialTCP connects to a peer. It blocks until the connection is established, the peer refuses it (syscall.ECONNREFUSED)
// or ctx ends.
func (s *Stack) DialTCP(ctx context.Context, to netip.AddrPort) (*TCPConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var queue waiter.Queue
	ep, err := s.stack.NewEndpoint(tcp.ProtocolNumber, ipv6.ProtocolNumber, &queue)
	if err != nil {
		return nil, errors.New(err.String())
	}
	entry, writable := waiter.NewChannelEntry(waiter.WritableEvents)
	queue.EventRegister(&entry)
	defer queue.EventUnregister(&entry)
	err = ep.Connect(fullAddress(to))
	if _, started := err.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			ep.Close()
			ep.Abort()
			return nil, ctx.Err()
		case <-writable:
		}
		err = ep.LastError()
	}
	switch err.(type) {
	case nil:
		return newTCPConn(&queue, ep), nil
	case *tcpip.ErrConnectionRefused:
		ep.Close()
		return nil, syscall.ECONNREFUSED
	}
	ep.Close()
	return nil, errors.New(err.String())
}

// DialUDP creates a flow to a peer. It sends nothing.
func (s *Stack) DialUDP(to netip.AddrPort) (*UDPConn, error) {
	remote := fullAddress(to)
	c, err := gonet.DialUDP(s.stack, nil, &remote, ipv6.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return &UDPConn{c}, nil
}

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nicID, Addr: tcpip.AddrFrom16(a.Addr().As16()), Port: a.Port()}
}

var _ net.Conn = (*TCPConn)(nil)

func addrOf(a tcpip.Address) netip.Addr {
	if a.Len() != 16 {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a.As16())
}
