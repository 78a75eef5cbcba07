package tailnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"tailscale.com/tailcfg"
)

const (
	maxRegions = 64
	// connectPatience is how long the home relay may take before the node looks for what is in the way.
	connectPatience = 2 * time.Second
	probeTimeout    = 5 * time.Second
	// The gap between two looks at the same relay grows from the first to the second.
	minProbeGap = time.Second
	maxProbeGap = time.Minute
)

// relays knows how each relay is reached: natively by the engine, or through a bridge where that cannot work.
type relays struct {
	node *Node
	wake chan struct{}

	ops sync.Mutex // serializes changes of the map; held while calling the engine

	mu    sync.Mutex // never held while calling the engine
	links []*relayLink
}

// relayLink is one relay. Its fields after url are guarded by relays.mu.
type relayLink struct {
	region RelayRegion
	url    *url.URL // without "/derp"

	bridge    *bridge // nil while the engine connects natively
	connected bool
	err       string // why the last attempt failed
	since     time.Time
	gap       time.Duration
	nextProbe time.Time
}

func newRelays(n *Node) *relays { return &relays{node: n, wake: make(chan struct{}, 1)} }

// SetRelayMap says which relays there are. server is the URL by which this process reaches its server, for relays that name
// none of their own. The node has a home relay when this returns; it may move to a nearer one when it has measured them.
//
// The engine reaches relays natively at "/derp" of the root of a URL, by one scheme per process: that of the first map set
// in it. All others are reached by websocket through a bridge in this process, which costs a quarter of their throughput.
// So is a relay whose native upgrade a proxy refuses while a websocket passes; that is found out when connecting fails.
func (n *Node) SetRelayMap(m RelayMap, server *url.URL) error {
	links, err := newLinks(m, server)
	if err != nil {
		return fmt.Errorf("set relay map: %w", err)
	}
	if n.closed.Load() {
		return fmt.Errorf("set relay map: %w", ErrClosed)
	}
	n.publishLocal()
	return n.relays.set(links)
}

func newLinks(m RelayMap, server *url.URL) ([]*relayLink, error) {
	if len(m.Regions) > maxRegions {
		return nil, fmt.Errorf("%d regions are too many", len(m.Regions))
	}
	seen := make(map[int]bool)
	var links []*relayLink
	for _, region := range m.Regions {
		if region.ID <= 0 || region.ID > 0xffff || seen[region.ID] {
			return nil, fmt.Errorf("region %d: the id is out of range or taken", region.ID)
		}
		if region.STUNPort < 0 || region.STUNPort > 0xffff {
			return nil, fmt.Errorf("region %d: STUN port %d is out of range", region.ID, region.STUNPort)
		}
		seen[region.ID] = true
		u := server
		if region.URL != "" {
			var err error
			if u, err = url.Parse(region.URL); err != nil {
				return nil, fmt.Errorf("region %d: %w", region.ID, err)
			}
		}
		if u == nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("region %d: its URL must be http or https, with a host", region.ID)
		}
		links = append(links, &relayLink{region: region, url: u, since: time.Now(), gap: minProbeGap})
	}
	return links, nil
}

// set takes over a new map. A relay that stays as it is keeps its connection, and its bridge.
func (r *relays) set(links []*relayLink) error {
	r.ops.Lock()
	defer r.ops.Unlock()
	r.mu.Lock()
	var unused []*bridge
	for _, old := range r.links {
		kept := false
		for i, link := range links {
			if link.region.ID == old.region.ID && *link.url == *old.url {
				old.region = link.region
				links[i], kept = old, true
			}
		}
		if !kept && old.bridge != nil {
			unused = append(unused, old.bridge)
		}
	}
	r.links = links
	r.mu.Unlock()

	var failed []error
	for _, link := range links {
		if r.bridgeOf(link) == nil && !nativelyReachable(link.url) {
			failed = append(failed, r.build(link))
		}
	}
	r.apply()
	for _, b := range unused {
		b.close()
	}
	r.poke()
	return errors.Join(failed...)
}

// nativelyReachable reports whether the engine can even address the relay.
func nativelyReachable(u *url.URL) bool {
	if u.Path != "" && u.Path != "/" {
		return false
	}
	if u.Port() == "" {
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && addr.Is6() {
			return false
		}
	}
	return claimScheme(u.Scheme) == u.Scheme
}

// build gives a link a bridge. r.ops must be held.
func (r *relays) build(link *relayLink) error {
	b, err := newBridge(link.url, claimScheme(link.url.Scheme) == "https", r.node.opts.RootCAs)
	if err != nil {
		return fmt.Errorf("bridge to relay %d: %w", link.region.ID, err)
	}
	r.mu.Lock()
	link.bridge = b
	r.mu.Unlock()
	return nil
}

func (r *relays) bridgeOf(link *relayLink) *bridge {
	r.mu.Lock()
	defer r.mu.Unlock()
	return link.bridge
}

// apply hands the current map to the engine and makes sure there is a home. r.ops must be held.
func (r *relays) apply() {
	n := r.node
	m := r.engineMap()
	home := r.home(n.Info().Region)
	n.health.SetDERPMap(m)
	n.magic.SetDERPMapWithoutReSTUN(m)
	if home != 0 {
		n.magic.ForceSetNearestDERP(home)
	}
	n.updateInfo(func(info *NodeInfo) { info.Region = home })
	n.measure("relay map")
}

func (r *relays) engineMap() *tailcfg.DERPMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &tailcfg.DERPMap{OmitDefaultRegions: true, Regions: make(map[int]*tailcfg.DERPRegion)}
	for _, link := range r.links {
		m.Regions[link.region.ID] = link.engineRegion()
	}
	return m
}

// stun reports whether any relay has a STUN server.
func (r *relays) stun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.links, func(link *relayLink) bool { return link.region.STUNPort != 0 })
}

// home is the region to call home now: the current one if it still exists, or else the first, or 0 without any.
func (r *relays) home(current int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.links) == 0 {
		return 0
	}
	for _, link := range r.links {
		if link.region.ID == current {
			return current
		}
	}
	return r.links[0].region.ID
}

// engineRegion is the relay in the engine's words. relays.mu must be held.
func (link *relayLink) engineRegion() *tailcfg.DERPRegion {
	region := &tailcfg.DERPRegion{RegionID: link.region.ID, RegionCode: link.region.Code, RegionName: link.region.Name}
	host := &tailcfg.DERPNode{
		Name: strconv.Itoa(link.region.ID) + "a", RegionID: link.region.ID,
		HostName: link.url.Hostname(), DERPPort: port(link.url), STUNPort: link.region.STUNPort,
	}
	if link.region.STUNPort == 0 {
		host.STUNPort = -1
	}
	if addr, err := netip.ParseAddr(host.HostName); err == nil {
		host.IPv4, host.IPv6 = "none", "none"
		if addr.Unmap().Is4() {
			host.IPv4 = addr.Unmap().String()
		} else {
			host.IPv6 = addr.String()
		}
	}
	if link.bridge == nil {
		region.Nodes = []*tailcfg.DERPNode{host}
		return region
	}
	if link.region.STUNPort != 0 {
		host.STUNOnly, host.DERPPort = true, 0
		region.Nodes = append(region.Nodes, host)
	}
	region.Nodes = append(region.Nodes, link.bridge.engineNode(link.region.ID))
	return region
}

func port(u *url.URL) int {
	if p, err := strconv.Atoi(u.Port()); err == nil {
		return p
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// The engine tells of its relay connections in its log only. These are the formats of the two lines that matter.
const (
	logConnected = "magicsock: derp-%d connected; connGen=%v"
	logFailed    = "magicsock: [%p] derp.Recv(derp-%d): %v"
)

// observe sees every line the engine logs, with the engine's locks held.
func (r *relays) observe(format string, args []any) {
	switch {
	case format == logConnected && len(args) == 2:
		r.note(args[0], true, "")
	case format == logFailed && len(args) == 3:
		r.note(args[1], false, fmt.Sprint(args[2]))
		r.poke()
	}
}

func (r *relays) note(region any, connected bool, problem string) {
	id, ok := region.(int)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, link := range r.links {
		if link.region.ID != id {
			continue
		}
		if link.connected != connected {
			link.since = time.Now()
		}
		link.connected, link.err = connected, problem
		if connected {
			link.gap = minProbeGap
		}
	}
}

// poke makes run look at the relays soon.
func (r *relays) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run looks after relays that do not connect, until the node closes.
func (r *relays) run() {
	patience := time.NewTimer(connectPatience)
	defer patience.Stop()
	for {
		select {
		case <-r.node.ctx.Done():
			return
		case <-r.wake:
			patience.Reset(connectPatience)
		case <-patience.C:
		}
		for _, link := range r.suspects() {
			r.look(link)
		}
	}
}

// suspects are relays that ought to be connected natively, are not, and were not looked at just now.
func (r *relays) suspects() []*relayLink {
	home := r.node.Info().Region
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var links []*relayLink
	for _, link := range r.links {
		late := link.region.ID == home && now.Sub(link.since) >= connectPatience
		if link.connected || link.bridge != nil || link.err == "" && !late || now.Before(link.nextProbe) {
			continue
		}
		link.nextProbe = now.Add(link.gap)
		link.gap = min(2*link.gap, maxProbeGap)
		links = append(links, link)
	}
	return links
}

// look finds out whether a websocket passes where the engine's own upgrade does not, and bridges the relay if so.
func (r *relays) look(link *relayLink) {
	n := r.node
	ctx, cancel := context.WithTimeout(n.ctx, probeTimeout)
	defer cancel()
	native := probeNative(ctx, link.url, n.opts.RootCAs)
	if native == nil {
		return // the way is free: the relay itself refuses, or is only just back
	}
	if ctx.Err() != nil && n.ctx.Err() == nil { // it hung; the websocket gets its own time
		ctx, cancel = context.WithTimeout(n.ctx, probeTimeout)
		defer cancel()
	}
	if err := probeWebsocket(ctx, link.url, n.opts.RootCAs); err != nil {
		n.log.Debug("relay is out of reach", "addr", link.url.Host, "err", native)
		return
	}
	n.log.Info("relay reached by websocket", "addr", link.url.Host, "reason", native)
	r.ops.Lock()
	defer r.ops.Unlock()
	if n.closed.Load() || !r.current(link) {
		return
	}
	if err := r.build(link); err != nil {
		n.log.Error("bridge relay", "err", err)
		return
	}
	r.apply()
}

func (r *relays) current(link *relayLink) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.links {
		if l == link {
			return link.bridge == nil
		}
	}
	return false
}

// close ends the bridges. The engine must be closed already.
func (r *relays) close() {
	r.ops.Lock()
	defer r.ops.Unlock()
	r.mu.Lock()
	links := r.links
	r.links = nil
	r.mu.Unlock()
	for _, link := range links {
		if link.bridge != nil {
			link.bridge.close()
		}
	}
}
