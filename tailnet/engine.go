package tailnet

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"tailscale.com/health"
	"tailscale.com/net/dns"
	"tailscale.com/net/netmon"
	"tailscale.com/net/tsdial"
	"tailscale.com/net/tstun"
	"tailscale.com/proxymap"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/types/netmap"
	"tailscale.com/util/eventbus"
	"tailscale.com/util/usermetric"
	"tailscale.com/wgengine"
	"tailscale.com/wgengine/magicsock"
	"tailscale.com/wgengine/netstack"
	"tailscale.com/wgengine/router"
	"tailscale.com/wgengine/wgcfg"
)

const (
	defaultSendBuffer = 1 << 20
	defaultRecvBuffer = 2 << 20
	// firstSendBuffer is what a new connection may take from its writer before it has room for it on the path, in bytes. The stack
	// lets it grow to twice the congestion window. A larger one would keep bytes from other connections of a stream.
	firstSendBuffer = 64 << 10
)

// startEngine wires WireGuard, the path choice (magicsock) and the network stack together. The order matters: the live
// tables before the key, the callbacks before the first relay map.
func (n *Node) startEngine() error {
	n.bus = eventbus.New()
	n.events = n.bus.Client("codermesh")
	n.health = health.NewTracker(n.bus)
	n.health.GotStreamedMapResponse() // without it the home relay could never change
	var err error
	if n.netmon, err = netmon.New(n.bus, n.logf); err != nil {
		return fmt.Errorf("watch network interfaces: %w", err)
	}
	n.dialer = &tsdial.Dialer{Logf: n.logf}
	var (
		tun  *tstun.Wrapper
		name *dns.Manager
	)
	n.engine, err = wgengine.NewUserspaceEngine(n.logf, wgengine.Config{
		EventBus:      n.bus,
		HealthTracker: n.health,
		NetMon:        n.netmon,
		Metrics:       new(usermetric.Registry),
		Dialer:        n.dialer,
		ListenPort:    n.opts.ListenPort,
		ExtraRootCAs:  n.opts.RootCAs,
		ControlKnobs:  &n.knobs,
		SetSubsystem: func(part any) {
			switch part := part.(type) {
			case *tstun.Wrapper:
				tun = part
			case *magicsock.Conn:
				n.magic = part
			case *dns.Manager:
				name = part
			}
		},
	})
	if err != nil {
		return fmt.Errorf("start WireGuard: %w", err)
	}
	n.magic.SetOnlyTCP443(n.opts.RelayOnly)
	n.disco = n.magic.DiscoPublicKey().Raw32()

	own := []netip.Prefix{netip.PrefixFrom(n.addr, n.addr.BitLen())}
	self := (&tailcfg.Node{
		ID: selfNodeID, StableID: tailcfg.StableNodeID(n.id.String()), Name: n.id.String() + ".",
		Key: n.public.node(), DiscoKey: n.disco.disco(), Addresses: own, AllowedIPs: own, Cap: tailcfg.CurrentCapabilityVersion,
	}).View()
	n.lastNodeID = selfNodeID
	n.installTables(self)

	n.stack, err = netstack.Create(n.logf, tun, n.engine, n.magic, n.dialer, name, new(proxymap.Mapper))
	if err != nil {
		return fmt.Errorf("start network stack: %w", err)
	}
	n.stack.ProcessLocalIPs = true
	n.stack.GetTCPHandlerForFlow = n.tcpFlow
	n.stack.GetUDPHandlerForFlow = n.udpFlow
	if err := n.boundBuffers(); err != nil {
		return err
	}
	if err := n.tuneTCP(); err != nil {
		return err
	}
	if err := n.stack.Start(nil); err != nil {
		return fmt.Errorf("start network stack: %w", err)
	}
	tun.Start()

	n.engine.SetSelfNode(self)
	n.magic.SetNetworkMap(self, nil)
	n.stack.UpdateNetstackIPs(&netmap.NetworkMap{SelfNode: self})
	n.installFilter()

	n.engine.SetStatusCallback(n.engineStatus)
	eventbus.SubscribeFunc(n.events, n.homeChanged)
	eventbus.SubscribeFunc(n.events, n.linkChanged)

	err = n.engine.Reconfig(&wgcfg.Config{PrivateKey: n.secret, Addresses: own}, &router.Config{LocalAddrs: own}, &dns.Config{})
	if err != nil && !errors.Is(err, wgengine.ErrNoChanges) {
		return fmt.Errorf("configure WireGuard: %w", err)
	}
	n.allowFragments()
	return nil
}

// allowFragments lets routers cut packets that are too long for a path, as WireGuard in the kernel does. By Linux's default they
// are dropped, and after the first one batches are refused for which the path is too narrow: what is left is a packet per timeout. It has to
// be called for each new socket, by New and then by watch only. The engine has a switch for its own search for a path's MTU, which sets the socket to one or the
// other and not to the default.
func (n *Node) allowFragments() {
	for _, search := range []bool{true, false} {
		n.knobs.PeerMTUEnable.Store(search)
		n.magic.UpdatePMTUD()
	}
}

// selfNodeID is the engine's number for the node itself. Peers get the ones after it.
const selfNodeID tailcfg.NodeID = 1

// installTables shows the engine the peer table. It reads the table with its own locks held, so no code that holds the
// table's lock may call the engine.
func (n *Node) installTables(self tailcfg.NodeView) {
	n.engine.SetPeerByIPPacketFunc(func(dst netip.Addr) (key.NodePublic, bool) {
		if p := n.peers.ip(dst); p != nil {
			return p.key, true
		}
		return key.NodePublic{}, false
	})
	n.engine.SetPeerConfigFunc(func(k key.NodePublic) ([]netip.Prefix, bool) {
		if p := n.peers.key(k); p != nil {
			return []netip.Prefix{netip.PrefixFrom(p.addr, p.addr.BitLen())}, true
		}
		return nil, false
	})
	n.engine.SetPeerForIPFunc(func(ip netip.Addr) (wgengine.PeerForIP, bool) {
		route := netip.PrefixFrom(ip, ip.BitLen())
		if ip == n.addr {
			return wgengine.PeerForIP{Node: self, IsSelf: true, Route: route}, true
		}
		if p := n.peers.ip(ip); p != nil {
			return wgengine.PeerForIP{Node: p.node, Route: route}, true
		}
		return wgengine.PeerForIP{}, false
	})
	n.engine.SetPeerSessionStateFunc(func(k key.NodePublic, state wgengine.PeerWireGuardState) {
		if p := n.peers.key(k); p != nil {
			p.live.setState(state)
		}
	})
}

// boundBuffers limits what one TCP connection may keep in flight.
func (n *Node) boundBuffers() error {
	send, recv := n.opts.SendBuffer, n.opts.RecvBuffer
	if send == 0 {
		send = defaultSendBuffer
	}
	if recv == 0 {
		recv = defaultRecvBuffer
	}
	send, recv = max(send, tcp.MinBufferSize), max(recv, tcp.MinBufferSize)
	tx := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: min(send, firstSendBuffer), Max: send}
	if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &tx); err != nil {
		return fmt.Errorf("bound TCP send buffers: %s", err)
	}
	rx := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: min(recv, tcp.DefaultReceiveBufferSize), Max: recv}
	if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &rx); err != nil {
		return fmt.Errorf("bound TCP receive buffers: %s", err)
	}
	return nil
}

// Bounds of TCP's patience. The stack's own, as everybody's, doubles the pause between two attempts up to two minutes, and gives
// up after 15: a connection would stay silent for as long again as the path was away.
const (
	// minRTO is twice the stack's own. On a long path and a busy machine half of its timeouts came before an answer that was only
	// late, and each of them begins anew with one packet.
	minRTO = 400 * time.Millisecond
	// maxRTO is the longest pause between two retransmissions. A round trip that takes longer costs needless ones.
	maxRTO = time.Second
	// maxRetries are half an hour of them: longer than a laptop's nap between two trains.
	maxRetries = uint64(30 * time.Minute / maxRTO)
)

// tuneTCP makes connections quick on long paths, go on soon after an outage, and outlive a long one.
//
// Cubic, unlike the engine's choice of Reno, ends its slow start when round trips grow, before it has lost a window's worth of
// packets: docs/decisions/0015-long-paths.md has the figures. The engine avoids it since its window overflows an integer some
// weeks after a connection's last loss; the timeout that follows sets it right.
func (n *Node) tuneTCP() error {
	control := tcpip.CongestionControlOption("cubic")
	if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &control); err != nil {
		return fmt.Errorf("choose TCP congestion control: %s", err)
	}
	shortest := tcpip.TCPMinRTOOption(minRTO)
	if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &shortest); err != nil {
		return fmt.Errorf("bound TCP retransmission timeout: %s", err)
	}
	longest := tcpip.TCPMaxRTOOption(maxRTO)
	if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &longest); err != nil {
		return fmt.Errorf("bound TCP retransmission timeout: %s", err)
	}
	tries := tcpip.TCPMaxRetriesOption(maxRetries)
	if err := n.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &tries); err != nil {
		return fmt.Errorf("bound TCP retries: %s", err)
	}
	return nil
}

// stopEngine ends what startEngine started, as far as it came.
func (n *Node) stopEngine() {
	if n.events != nil {
		n.events.Close()
	}
	if n.stack != nil {
		// Closing the stack stops whoever empties its send queue (512 packets) and then resets every connection, those that
		// linger after their end included: more than 512 would wait for room for ever. A stack without addresses cannot send.
		n.stack.UpdateNetstackIPs(nil)
		n.stack.Close()
	}
	if n.engine != nil {
		n.engine.Close()
	}
	if n.dialer != nil {
		n.dialer.Close()
	}
	if n.netmon != nil {
		n.netmon.Close()
	}
	if n.bus != nil {
		n.bus.Close()
	}
}

// engineStatus is called by the engine when its own endpoints changed. It must not block.
func (n *Node) engineStatus(status *wgengine.Status, err error) {
	if err != nil || status == nil || n.opts.RelayOnly || len(status.LocalAddrs) == 0 {
		return
	}
	n.endpointsChanged(status.LocalAddrs)
}

// homeChanged is called by the engine when it chose another home relay.
func (n *Node) homeChanged(home magicsock.HomeDERPChanged) {
	if home.New != 0 {
		n.updateInfo(func(info *NodeInfo) { info.Region = home.New })
	}
}
