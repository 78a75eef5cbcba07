package tailnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// Pong is a peer's answer to a Ping.
type Pong struct {
	Latency time.Duration
	// Direct reports whether the answer came over a direct path, from Endpoint; otherwise it came through the relay
	// Region (a code).
	Direct   bool
	Endpoint netip.AddrPort
	Region   string
}

// Ping measures the path to a peer and makes the node look for a better one. It blocks until the first answer or the
// end of ctx. Early answers may come through a relay. Peers that run plain WireGuard cannot answer.
func (n *Node) Ping(ctx context.Context, id uuid.UUID) (Pong, error) {
	if n.closed.Load() {
		return Pong{}, ErrClosed
	}
	p := n.peers.id(id)
	if p == nil {
		return Pong{}, fmt.Errorf("ping %s: %w", id, ErrUnknownPeer)
	}
	if p.WireGuardOnly {
		return Pong{}, fmt.Errorf("ping %s: peer runs plain WireGuard", id)
	}
	answers := make(chan engine.Pong, 1)
	again := time.NewTimer(0) // a ping may be lost and is then never answered
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return Pong{}, fmt.Errorf("ping %s: %w", id, ctx.Err())
		case <-n.ctx.Done():
			return Pong{}, ErrClosed
		case <-again.C:
			n.engine.Ping(p.Key, func(pong engine.Pong) {
				select {
				case answers <- pong:
				default:
				}
			})
			again.Reset(time.Second)
		case pong := <-answers:
			if pong.Err != "" {
				return Pong{}, fmt.Errorf("ping %s: %s", id, pong.Err)
			}
			p.live.setLatency(pong.Latency)
			return Pong{
				Latency: pong.Latency, Direct: pong.Endpoint.IsValid(), Endpoint: pong.Endpoint, Region: pong.Region,
			}, nil
		}
	}
}

// Latency returns the round-trip time of the latest answered ping of a peer, whether sent by Ping or by the node itself
// while dialing. It is 0 if there was none.
func (n *Node) Latency(id uuid.UUID) time.Duration {
	p := n.peers.id(id)
	if p == nil {
		return 0
	}
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	return p.live.latency
}

// Path is how packets to a peer travel.
type Path string

const (
	PathNone   Path = "none" // no recent packets
	PathDirect Path = "direct"
	PathRelay  Path = "relay"
)

// Status is a snapshot of a node.
type Status struct {
	ID       uuid.UUID    `json:"id"`
	Addr     netip.Addr   `json:"addr"`
	Region   int          `json:"region"`    // home relay, 0 while unknown
	ListenOn uint16       `json:"listen_on"` // UDP port
	Relays   []RelayLink  `json:"relays"`
	Peers    []PeerStatus `json:"peers"` // by id
	Rebinds  uint64       `json:"rebinds"`
}

// RelayLink is the state of one relay. Only the home relay is always connected.
type RelayLink struct {
	ID        int    `json:"id"`
	Code      string `json:"code"`
	Connected bool   `json:"connected"`
	// Websocket reports whether the relay is reached over a websocket.
	Websocket bool          `json:"websocket"`
	Err       string        `json:"err,omitempty"`     // why the last attempt to connect failed
	Latency   time.Duration `json:"latency,omitempty"` // in nanoseconds; 0 while not measured
}

// PeerStatus is the state of one peer.
type PeerStatus struct {
	ID       uuid.UUID      `json:"id"`
	Addr     netip.Addr     `json:"addr"`
	Rx       int64          `json:"rx"` // bytes of WireGuard's payload in the current session
	Tx       int64          `json:"tx"`
	Path     Path           `json:"path"`
	Endpoint netip.AddrPort `json:"endpoint"` // remote end of a direct path
	Region   string         `json:"region"`   // relay code of a relayed path
	// LastHandshake advances every two minutes under traffic, and not at all without. It does not indicate liveness.
	LastHandshake time.Time `json:"last_handshake"`
	// Latency is the round trip that Measure measured, otherwise 0.
	Latency time.Duration `json:"latency,omitempty"`
}

// Status takes a snapshot. Its cost grows with the number of peers.
func (n *Node) Status() Status {
	status := Status{
		ID: n.id, Addr: n.addr, Region: n.Info().Region, Rebinds: n.rebinds.Load(), Relays: n.relayLinks(),
	}
	if n.closed.Load() {
		return status
	}
	status.ListenOn = n.engine.LocalPort()
	latency := n.engine.RelayLatencies()
	for i := range status.Relays {
		status.Relays[i].Latency = latency[status.Relays[i].ID]
	}
	seen := n.engine.PeerStates()
	for _, p := range n.peers.all() {
		status.Peers = append(status.Peers, p.status(seen[p.Key]))
	}
	slices.SortFunc(status.Peers, func(a, b PeerStatus) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return status
}

// maxMeasured is the maximum number of pings in one Measure.
const maxMeasured = 64

// Measure returns the state of the peers that which selects, with the round-trip time to each. It blocks until all have
// answered or ctx ends; a peer that did not answer has no Latency. An idle peer, with which no path is in use, gets the
// path of its answer. With more than maxMeasured peers, nothing is measured.
func (n *Node) Measure(ctx context.Context, which func(uuid.UUID) bool) []PeerStatus {
	peers := slices.DeleteFunc(n.Status().Peers, func(p PeerStatus) bool { return !which(p.ID) })
	if len(peers) > maxMeasured {
		return peers
	}
	var pings sync.WaitGroup
	for i := range peers {
		pings.Go(func() {
			if pong, err := n.Ping(ctx, peers[i].ID); err == nil { // optional: on failure the latency stays unknown
				peers[i].answered(pong)
			}
		})
	}
	pings.Wait()
	return peers
}

// answered notes the answer to a ping.
func (p *PeerStatus) answered(pong Pong) {
	p.Latency = max(pong.Latency, time.Microsecond)
	switch {
	case p.Path == PathDirect:
	case pong.Direct:
		p.Path, p.Endpoint, p.Region = PathDirect, pong.Endpoint, ""
	case p.Path == PathNone:
		p.Path, p.Region = PathRelay, pong.Region
	}
}

func (p *peer) status(seen engine.PeerState) PeerStatus {
	status := PeerStatus{
		ID: p.ID, Addr: p.addr, Path: PathNone, Rx: int64(seen.Rx), Tx: int64(seen.Tx),
		LastHandshake: seen.LastHandshake,
	}
	if seen.Endpoint.IsValid() {
		status.Path, status.Endpoint = PathDirect, seen.Endpoint
	} else if established, _ := p.live.established(); established {
		status.Path, status.Region = PathRelay, seen.Relay
	}
	return status
}

// relayLinks returns the relays in the order of the map, without latencies.
func (n *Node) relayLinks() []RelayLink {
	states := n.engine.RelayStates()
	var links []RelayLink
	for _, region := range n.relays.regions() {
		state := states[region.ID]
		links = append(links, RelayLink{
			ID: region.ID, Code: region.Code, Connected: state.Connected, Websocket: state.Websocket,
			Err: state.Problem,
		})
	}
	return links
}

// Report describes what a node's network allows.
type Report struct {
	UDP  bool `json:"udp"`  // a UDP round trip to some relay's STUN server worked
	IPv4 bool `json:"ipv4"` // over IPv4
	IPv6 bool `json:"ipv6"` // over IPv6
	// MappingVariesByDest reports whether the NAT presents different addresses to different servers, which makes direct
	// paths hard. It is nil while unknown: telling takes two STUN servers.
	MappingVariesByDest *bool          `json:"mapping_varies_by_dest"`
	PublicIPv4          netip.AddrPort `json:"public_ipv4"`
	PublicIPv6          netip.AddrPort `json:"public_ipv6"`
	PreferredRegion     int            `json:"preferred_region"` // 0 if none answered
	Regions             []RegionReport `json:"regions"`          // by id
}

// RegionReport is the measurement of one relay.
type RegionReport struct {
	RelayLink
	LatencyV4 time.Duration `json:"latency_v4,omitempty"`
	LatencyV6 time.Duration `json:"latency_v6,omitempty"`
}

// Netcheck measures the network anew, on sockets of its own. It blocks for some round trips, or some seconds where UDP
// is blocked.
func (n *Node) Netcheck(ctx context.Context) (Report, error) {
	if n.closed.Load() {
		return Report{}, ErrClosed
	}
	links := n.relayLinks()
	if len(links) == 0 {
		return Report{}, errors.New("check network: no relays to check against")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	found, err := n.engine.Check(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("check network: %w", err)
	}
	report := Report{
		UDP: found.UDP, IPv4: found.IPv4, IPv6: found.IPv6, PublicIPv4: found.PublicIPv4, PublicIPv6: found.PublicIPv6,
		PreferredRegion: cmp.Or(found.PreferredRegion, n.Info().Region), MappingVariesByDest: found.MappingVariesByDest,
	}
	slices.SortFunc(links, func(a, b RelayLink) int { return a.ID - b.ID })
	known := n.engine.RelayLatencies() // also where UDP does not get through
	for _, link := range links {
		link.Latency = cmp.Or(found.Latency[link.ID], known[link.ID])
		report.Regions = append(report.Regions, RegionReport{
			RelayLink: link, LatencyV4: found.V4[link.ID], LatencyV6: found.V6[link.ID],
		})
	}
	return report, nil
}
