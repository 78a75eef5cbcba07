package tailnet

import (
	"net/netip"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// This file determines where the node can be reached directly, and when two nodes behind NATs try to reach each other.
//
// A packet that reaches a NAT before the node behind it has sent one to the same peer may spoil the direct path for
// good. If the gateway runs Linux and its firewall does not drop the packet at once, it remembers the packet's
// addresses and then assigns the node a port towards that peer other than the published one. So while two peers are
// both behind NATs, neither learns the other's endpoints until the coordinator sends them to both, as close to
// simultaneously as it can: their first packets then cross on the way. See docs/decisions/0016-hole-punching.md.

// publishLocal publishes the machine's own addresses before the engine has measured the network. They suffice for a
// peer in the same network and are available at once.
func (n *Node) publishLocal() {
	if n.opts.RelayOnly || n.relayOnly.Load() {
		return
	}
	regular, loopback, err := engine.LocalAddrs()
	if err != nil {
		n.log.Debug("cannot list local addresses", "err", err)
		return
	}
	if len(regular) == 0 {
		regular = loopback
	}
	port := n.engine.LocalPort()
	n.updateInfo(func(info *NodeInfo) {
		if len(info.Endpoints) > 0 || port == 0 || n.relayOnly.Load() {
			return
		}
		for _, addr := range regular {
			info.Endpoints = append(info.Endpoints, netip.AddrPortFrom(addr, port))
		}
	})
}

// endpointsChanged records what the engine found out about this node's endpoints. It does not block.
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
		if n.relayOnly.Load() {
			return
		}
		info.Endpoints = endpoints
		if measured {
			info.Mapped, info.Measured = mapped, true
		} else if !slices.Contains(endpoints, info.Mapped) {
			info.Mapped = netip.AddrPort{}
		}
	})
}

// setRelayOnly follows the relay map: it turns direct paths off and forgets those that there are, or allows them again.
func (n *Node) setRelayOnly(on bool) {
	if n.relayOnly.Swap(on) == on {
		return
	}
	n.engine.SetRelayOnly(on)
	if on {
		n.updateInfo(func(info *NodeInfo) { info.Endpoints, info.Mapped = nil, netip.AddrPort{} })
	}
	n.peerOps.Lock()
	defer n.peerOps.Unlock()
	if n.closed.Load() {
		return
	}
	for _, p := range n.peers.all() {
		n.engine.ForgetPaths(p.enginePeer())
	}
}

// has reports whether an address belongs to this machine. It returns true if it cannot tell.
func (n *Node) has(addr netip.Addr) bool {
	regular, loopback, err := engine.LocalAddrs()
	return err != nil || slices.Contains(regular, addr) || slices.Contains(loopback, addr)
}

// measure makes the engine measure the network.
func (n *Node) measure(reason string) {
	n.infoMu.Lock()
	n.asked = time.Now()
	n.infoMu.Unlock()
	if n.engine.RelayOnly() || !n.relays.stun() {
		n.updateInfo(func(info *NodeInfo) { info.Measured = true }) // there is nothing to measure
	}
	n.engine.Measure(reason)
}

// noteMeasured records a measurement that changed nothing or found nothing, which the engine does not report. A node
// behind a NAT keeps measuring while it is idle: the address at which others meet it is valid only while the NAT keeps
// the mapping.
func (n *Node) noteMeasured() {
	n.infoMu.Lock()
	open := !n.info.Measured && !n.asked.IsZero()
	asked, mapped := n.asked, n.info.Mapped.IsValid()
	n.infoMu.Unlock()
	n.engine.KeepMeasuring(mapped)
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

// probe makes the engine look for a direct path to p now. It does not wait for one.
func (n *Node) probe(p *peer) {
	n.engine.Ping(p.Key, func(engine.Pong) {})
}

// forgetMapped forgets the endpoints of peers behind NATs after this node has moved: the coordinator sends them again
// when both sides should try.
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

// homeChanged is called by the engine when it has chosen another home relay.
func (n *Node) homeChanged(region int) {
	n.updateInfo(func(info *NodeInfo) { info.Region = region })
}
