package engine

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"tailscale.com/net/netcheck"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/webdial"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet/internal/sendbuffer"
)

// Relay is a relay that peers may use as their home.
type Relay struct {
	Region     int // positive, unique
	Code, Name string
	URL        *url.URL // http or https; "/derp" is added
	STUNPort   int      // UDP, on the URL's host; 0 means none
	STUN       []STUNServer
	// Coordinators is set if the process that coordinates this node runs the relay.
	Coordinators bool
}

// STUNServer answers STUN for a relay, and is no part of it.
type STUNServer struct {
	Host string
	Port int // UDP
}

// RelayState is the state of the connection to a relay.
type RelayState struct {
	Connected bool
	Websocket bool   // connected over a websocket, since the native upgrade does not get through
	Problem   string // why the last connection ended or could not be established
	// Latency is the round-trip time when the relay last answered, 0 before it has.
	Latency time.Duration
}

// ExpectRelay starts connecting to the relay that SetRelays will probably name, and keeps the connection until then. It
// does nothing once SetRelays has been called.
func (e *Engine) ExpectRelay(region int, u *url.URL) {
	e.relayOps.Lock()
	defer e.relayOps.Unlock()
	e.relaysMu.Lock()
	defer e.relaysMu.Unlock()
	if e.relays != nil || e.links == nil || len(e.links) > 0 {
		return
	}
	l := newRelayLink(e, Relay{Region: region, URL: u}, newHost())
	l.want(expected, true)
	e.links[region] = l
}

// expected is the shimConn that stands for ExpectRelay in a link's wants.
var expected = new(shimConn)

// SetRelays sets the available relays and the current home, 0 for none. A relay whose URL does not change keeps its
// connection. After Close it does nothing: a welcome of the coordinator may arrive while the node closes.
func (e *Engine) SetRelays(relays []Relay, home int) {
	e.relayOps.Lock()
	defer e.relayOps.Unlock()
	next := make(map[int]*relayLink)
	e.relaysMu.Lock()
	old := e.links
	if old == nil {
		e.relaysMu.Unlock()
		return
	}
	for _, r := range relays {
		if l := old[r.Region]; l != nil && *l.relay.URL == *r.URL {
			next[r.Region] = l
		} else {
			next[r.Region] = newRelayLink(e, r, newHost())
		}
	}
	e.links, e.relays = next, append([]Relay{}, relays...)
	e.relaysMu.Unlock()

	e.openShim(true)
	if home != 0 {
		e.magic.ForceSetNearestDERP(home)
	}
	for region, l := range old {
		if next[region] != l {
			l.close()
		} else {
			l.confirm()
		}
	}
}

// homeChanged is called after magicsock has taken another relay as its home, 0 for none. A measurement that began
// before a relay was removed may still prefer it. magicsock then takes it without connecting to it, and would not
// connect once the relay is back, while peers send to this node there. So another relay becomes the home.
func (e *Engine) homeChanged(old, region int) {
	e.relaysMu.Lock()
	listed := func(region int) bool {
		return slices.ContainsFunc(e.relays, func(r Relay) bool { return r.Region == region })
	}
	known, instead := listed(region), 0
	switch {
	case listed(old):
		instead = old
	case len(e.relays) > 0:
		instead = e.relays[0].Region
	}
	e.relaysMu.Unlock()
	switch {
	case known:
		e.opts.Home(region)
	case region != 0 && instead != 0:
		e.magic.ForceSetNearestDERP(instead)
	}
}

// openShim makes the shim listen while magicsock lacks a connection to some relay. It gives magicsock the relay map if
// announce is set or the shim's port has changed.
func (e *Engine) openShim(announce bool) {
	open := slices.ContainsFunc(e.allLinks(), func(l *relayLink) bool { return !l.shimmed() })
	moved, err := e.shim.listen(open)
	if err != nil {
		e.log.Error("cannot reach relays", "err", err)
	}
	if announce || moved {
		m := e.relayMap(true)
		e.health.SetDERPMap(m)
		e.magic.SetDERPMapWithoutReSTUN(m)
	}
}

func (e *Engine) closeRelays() {
	e.relayOps.Lock()
	defer e.relayOps.Unlock()
	e.relaysMu.Lock()
	links := e.links
	e.links, e.relays = nil, nil
	e.relaysMu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// RelayStates returns the state of each relay by region.
func (e *Engine) RelayStates() map[int]RelayState {
	states := make(map[int]RelayState)
	for _, l := range e.allLinks() {
		l.mu.Lock()
		states[l.relay.Region] = l.state
		l.mu.Unlock()
	}
	return states
}

// RelayLatencies returns the round-trip time to each relay: to its STUN server where that was measured recently,
// otherwise on the connection to the relay when it was established.
func (e *Engine) RelayLatencies() map[int]time.Duration {
	latencies := make(map[int]time.Duration)
	for region, state := range e.RelayStates() {
		if state.Latency > 0 {
			latencies[region] = state.Latency
		}
	}
	maps.Copy(latencies, e.magic.GetDERPRegionLatency())
	return latencies
}

// RenewRelays replaces each connection to a relay with a new one as soon as that is established. It does not wait.
func (e *Engine) RenewRelays() {
	for _, l := range e.allLinks() {
		l.renew()
	}
}

// CheckRelays asks each relay for an answer, and replaces the connections to those that have not answered the last
// question for patience. It does not wait. Connections to relays that answer stay: replacing one disturbs all that it
// carries.
func (e *Engine) CheckRelays(patience time.Duration) {
	for _, l := range e.allLinks() {
		l.check(patience)
	}
}

// RelaysRenewed returns how often a connection to a relay was established.
func (e *Engine) RelaysRenewed() uint64 { return e.relaysMade.Load() }

func (e *Engine) allLinks() []*relayLink {
	e.relaysMu.Lock()
	defer e.relaysMu.Unlock()
	return slices.Collect(maps.Values(e.links))
}

func (e *Engine) link(region int) *relayLink {
	e.relaysMu.Lock()
	defer e.relaysMu.Unlock()
	return e.links[region]
}

func (e *Engine) linkByHost(host string) *relayLink {
	for _, l := range e.allLinks() {
		if l.host == host {
			return l
		}
	}
	return nil
}

func (e *Engine) forgetQueues(k key.NodePublic) {
	for _, l := range e.allLinks() {
		l.forget(k)
	}
}

// relayMap returns the relays in magicsock's format: reached through the shim if shimmed is set, or directly, for
// measuring the network.
func (e *Engine) relayMap(shimmed bool) *tailcfg.DERPMap {
	m := &tailcfg.DERPMap{OmitDefaultRegions: true, Regions: make(map[int]*tailcfg.DERPRegion)}
	e.relaysMu.Lock()
	relays, links := e.relays, maps.Clone(e.links)
	e.relaysMu.Unlock()
	// magicsock takes a measurement that sent nothing for a broken socket: before the next one it opens a new socket
	// and forgets all direct paths. So if no relay has a STUN server, it sends to ports that do not answer.
	silent := !slices.ContainsFunc(relays, func(r Relay) bool { return r.STUNPort != 0 || len(r.STUN) > 0 })
	for _, r := range relays {
		region := &tailcfg.DERPRegion{RegionID: r.Region, RegionCode: r.Code, RegionName: r.Name}
		own := relayNode(r)
		if shimmed {
			own.STUNOnly = true
			if silent {
				own.STUNPort = own.DERPPort
			}
			region.Nodes = append(region.Nodes, e.shim.node(links[r.Region]))
		}
		for i, further := range r.STUN {
			region.Nodes = slices.Insert(region.Nodes, i, stunNode(r.Region, i, further))
		}
		if !shimmed || own.STUNPort > 0 {
			region.Nodes = append([]*tailcfg.DERPNode{own}, region.Nodes...)
		}
		m.Regions[r.Region] = region
	}
	return m
}

func relayNode(r Relay) *tailcfg.DERPNode {
	node := &tailcfg.DERPNode{
		Name: strconv.Itoa(r.Region) + "a", RegionID: r.Region, HostName: r.URL.Hostname(), DERPPort: relayPort(r.URL),
		STUNPort: r.STUNPort,
	}
	if r.STUNPort == 0 {
		node.STUNPort = -1
	}
	locate(node)
	return node
}

// stunNode returns a further STUN server of a region. A measurement asks a region's first nodes.
func stunNode(region, number int, s STUNServer) *tailcfg.DERPNode {
	node := &tailcfg.DERPNode{
		Name: strconv.Itoa(region) + "s" + strconv.Itoa(number), RegionID: region, HostName: s.Host, STUNPort: s.Port, STUNOnly: true,
	}
	locate(node)
	return node
}

// locate spares a lookup of a host that is an address.
func locate(node *tailcfg.DERPNode) {
	addr, err := netip.ParseAddr(node.HostName)
	if err != nil {
		return
	}
	node.IPv4, node.IPv6 = "none", "none"
	if addr.Unmap().Is4() {
		node.IPv4 = addr.Unmap().String()
	} else {
		node.IPv6 = addr.String()
	}
}

func relayPort(u *url.URL) int {
	if p, err := strconv.Atoi(u.Port()); err == nil {
		return p
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// Netcheck is the result of measuring the network.
type Netcheck struct {
	UDP, IPv4, IPv6        bool
	MappingVariesByDest    *bool // nil while unknown
	PublicIPv4, PublicIPv6 netip.AddrPort
	PreferredRegion        int
	Latency, V4, V6        map[int]time.Duration // by region
	At                     time.Time
}

func netcheckOf(r *netcheck.Report) Netcheck {
	n := Netcheck{
		UDP: r.UDP, IPv4: r.IPv4, IPv6: r.IPv6, PublicIPv4: r.GlobalV4, PublicIPv6: r.GlobalV6,
		PreferredRegion: r.PreferredDERP,
		Latency:         r.RegionLatency, V4: r.RegionV4Latency, V6: r.RegionV6Latency, At: r.Now,
	}
	if varies, known := r.MappingVariesByDestIP.Get(); known {
		n.MappingVariesByDest = &varies
	}
	return n
}

// Check measures the network anew, on sockets of its own. It blocks for some round trips, or some seconds where UDP is
// blocked.
func (e *Engine) Check(ctx context.Context) (Netcheck, error) {
	checker := &netcheck.Client{NetMon: e.netmon, Logf: e.logf}
	relayOnly := e.RelayOnly()
	if err := checker.Standalone(ctx, ""); err != nil && !relayOnly {
		return Netcheck{}, err
	}
	found, err := checker.GetReport(ctx, e.relayMap(false), &netcheck.GetReportOpts{OnlyTCP443: relayOnly})
	if err != nil {
		return Netcheck{}, err
	}
	return netcheckOf(found), nil
}

// dialNative connects to a relay by an HTTP upgrade to DERP itself.
func dialNative(ctx context.Context, relay *url.URL, l *relayLink) (net.Conn, *bufio.Reader, error) {
	var raw net.Conn
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { raw = info.Conn }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, relay.JoinPath("derp").String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Upgrade", "DERP")
	req.Header.Set("Connection", "Upgrade")
	resp, err := l.transport().RoundTrip(req)
	switch {
	case err != nil && raw != nil && ctx.Err() == nil:
		return nil, nil, &upgradeError{err}
	case err != nil:
		return nil, nil, err
	}
	body, ok := resp.Body.(interface {
		Read([]byte) (int, error)
		Write([]byte) (int, error)
		Close() error
	})
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		resp.Body.Close()
		return nil, nil, &upgradeError{fmt.Errorf("relay answered upgrade with %s", resp.Status)}
	}
	return upgraded{raw, body}, bufio.NewReaderSize(&patientReader{from: body}, relayRead), nil
}

// upgraded is a connection after an upgrade. It reads and writes through the HTTP client, which may have buffered data,
// and uses the net.Conn for everything else.
type upgraded struct {
	net.Conn
	body interface {
		Read([]byte) (int, error)
		Write([]byte) (int, error)
		Close() error
	}
}

func (u upgraded) Read(b []byte) (int, error)  { return u.body.Read(b) }
func (u upgraded) Write(b []byte) (int, error) { return u.body.Write(b) }
func (u upgraded) Close() error                { return u.body.Close() }

// dialWebsocket connects to a relay over a websocket, which gets through proxies that support no other upgrade.
func dialWebsocket(ctx context.Context, relay *url.URL, l *relayLink) (net.Conn, *bufio.Reader, error) {
	u := relay.JoinPath("derp")
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[relay.Scheme]
	u.RawQuery, u.Fragment = "", ""
	client := &http.Client{Transport: l.transport()}
	ws, err := websock.Dial(ctx, u, websock.DialOptions{HTTPClient: client, Subprotocol: "derp", PingInterval: -1})
	if err != nil {
		return nil, nil, err
	}
	c := ws.NetConn(context.Background())
	return websocketConn{c, ws}, bufio.NewReaderSize(c, relayRead), nil
}

type websocketConn struct {
	net.Conn
	ws *websock.Conn
}

func (c websocketConn) Close() error { return c.ws.CloseNow() }

// transport returns the HTTP transport for reaching the relay. Its segments are small from the beginning: where large
// packets are dropped in silence, the kernel needs seconds to find out, and neither end may be told.
func (l *relayLink) transport() *http.Transport {
	t := webdial.Cautious(webdial.Upgrader(l.engine.opts.TLS))
	t.ResponseHeaderTimeout = upgradeTimeout
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			sendbuffer.Enlarge(c)
		}
		return c, err
	}
	return t
}
