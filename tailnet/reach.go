package tailnet

import (
	"net/netip"
	"slices"
	"time"

	"github.com/codermesh/codermesh/tailnet/engine"
)

// This file is about where the node can be reached directly, and when two nodes behind NATs try.
//
// A packet that comes to a NAT before its own side has sent one there may spoil the direct path for good: Linux, where the
// gateway's firewall does not drop it at once, remembers its addresses, and gives the node another port towards that peer than
// everybody was told. So a node is not told the endpoints of a peer while both are behind NATs, until the coordinator tells both of them,
// at one time as far as it can: their first packets cross on the way. docs/decisions/0016-meeting.md has more.

// publishLocal tells the machine's own addresses before the engine has measured the network: enough for a peer in the same
// network, and nothing to wait for.
func (n *Node) publishLocal() {
	if n.opts.RelayOnly {
		return
	}
	regular, loopback, err := engine.LocalAddrs()
	if err != nil {
		n.log.Debug("list local addresses", "err", err)
		return
	}
	if len(regular) == 0 {
		regular = loopback
	}
	port := n.engine.LocalPort()
	n.updateInfo(func(info *NodeInfo) {
		if len(info.Endpoints) > 0 || port == 0 {
			return
		}
		for _, addr := range regular {
			info.Endpoints = append(info.Endpoints, netip.AddrPortFrom(addr, port))
		}
	})
}

// endpointsChanged takes in what the engine found out about this node, and does not block.
func (n *Node) endpointsChanged(found []engine.Endpoint) {
	endpoints := make([]netip.AddrPort, len(found))
	var mapped netip.AddrPort
	measured := false
	for i, ep := range found {
		endpoints[i] = ep.Addr
		if ep.STUN {
			measured = true
			if !mapped.IsValid() && !n.has(ep.Addr.Addr()) {
				mapped = ep.Addr
			}
		}
	}
	n.updateInfo(func(info *NodeInfo) {
		info.Endpoints = endpoints
		if measured {
			info.Mapped, info.Measured = mapped, true
		} else if !slices.Contains(endpoints, info.Mapped) {
			info.Mapped = netip.AddrPort{}
		}
	})
}

// has reports whether an address is one of this machine's. It says yes when it cannot know.
func (n *Node) has(addr netip.Addr) bool {
	regular, loopback, err := engine.LocalAddrs()
	return err != nil || slices.Contains(regular, addr) || slices.Contains(loopback, addr)
}

// measure lets the engine look at the network.
func (n *Node) measure(reason string) {
	n.infoMu.Lock()
	n.asked = time.Now()
	n.infoMu.Unlock()
	if n.opts.RelayOnly || !n.relays.stun() {
		n.updateInfo(func(info *NodeInfo) { info.Measured = true }) // there is nothing to measure
	}
	n.engine.Measure(reason)
}

// noteMeasured takes in a measurement that changed nothing, or found nothing out: the engine does not tell of those.
func (n *Node) noteMeasured() {
	n.infoMu.Lock()
	open := !n.info.Measured && !n.asked.IsZero()
	asked := n.asked
	n.infoMu.Unlock()
	if !open {
		return
	}
	report, ok := n.engine.Measured(n.ctx)
	if !ok || report.At.Before(asked) {
		return
	}
	n.updateInfo(func(info *NodeInfo) {
		for _, seen := range []netip.AddrPort{report.PublicIPv4, report.PublicIPv6} {
			if !info.Mapped.IsValid() && slices.Contains(info.Endpoints, seen) && !n.has(seen.Addr()) {
				info.Mapped = seen
			}
		}
		info.Measured = true
	})
}

// probe makes the engine look for a direct path to p now, and does not wait for one.
func (n *Node) probe(p *peer) {
	n.engine.Ping(p.Key, func(engine.Pong) {})
}

// forgetMapped forgets where peers behind NATs are, when this node has moved: the coordinator tells again, when both should try.
func (n *Node) forgetMapped() {
	n.peerOps.Lock()
	defer n.peerOps.Unlock()
	if n.closed.Load() {
		return
	}
	for _, p := range n.peers.all() {
		if !p.Mapped.IsValid() {
			continue
		}
		next := *p
		next.Endpoints = nil
		n.peers.put(&next)
		n.engine.ForgetPaths(next.enginePeer())
	}
}

// homeChanged is called by the engine when it chose another home relay.
func (n *Node) homeChanged(region int) {
	n.updateInfo(func(info *NodeInfo) { info.Region = region })
}
