package wireguard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

const (
	// sendBuffer and recvBuffer limit what one connection keeps in flight, in bytes. Devices are not trusted with the
	// mesh's own limits: a device that does not read, or whose workspace does not, holds as much here.
	sendBuffer, recvBuffer = 1 << 20, 512 << 10
	// maxFlows bounds the connections and flows of a peer.
	maxFlows = 512
	// maxEchoes bounds the questions about echo requests that wait for the owner, over all peers and of one.
	maxEchoes, maxPeerEchoes = 256, 4
	// lookEvery is how often the gateway looks where its peers are, while packets arrive. WireGuard lists all of them,
	// so with thousands it looks less often: it spends at most one part in lookShare of the time on it.
	lookEvery = time.Second
	lookShare = 50
	// sessionLife is how long a session lives without a handshake: WireGuard's REJECT_AFTER_TIME.
	sessionLife = device.RejectAfterTime
	// A removed peer stays until the resets of its connections have left. Nothing else passes meanwhile. Where a
	// handshake must come first, it stays for resetGrace: the device may be away. Otherwise resetPatience guards
	// against a mark that is lost.
	resetGrace    = 100 * time.Millisecond
	resetPatience = device.RekeyTimeout
)

// Key is a Curve25519 key, public or private.
type Key = [32]byte

// Peer is a device that may connect.
type Peer struct {
	Key  Key        // public
	Addr netip.Addr // its own address in the tunnel
}

// Sighting is where a peer was heard.
type Sighting struct {
	Key       Key
	Endpoint  netip.AddrPort
	Handshake time.Time // the latest
}

// Options configures a Gateway. All are required, except the logger. The callbacks may be called at the same time.
type Options struct {
	PrivateKey Key
	Port       uint16     // UDP, on all addresses of the machine; 0 means any
	Addr       netip.Addr // the gateway's own address in the tunnel, IPv6
	Prefix     netip.Prefix
	Logger     *slog.Logger

	// AcceptTCP and AcceptUDP return the handler of a connection or flow that a peer opens, to an address of Prefix, or
	// nil to refuse it. They may block, for as long as the device waits for the answer to a SYN. A handler owns its
	// connection. That of AcceptTCP gets nil if the device does not complete the handshake.
	AcceptTCP func(src, dst netip.AddrPort) func(Conn)
	AcceptUDP func(src, dst netip.AddrPort) func(net.Conn)
	// Echo reports whether an address answers a peer's echo requests. It may block.
	Echo func(src, dst netip.Addr) bool
	// Seen is called with the peers that have moved or made a handshake, at most once in a second.
	Seen func([]Sighting)
	// Stranger is called with the address that a packet of a session came from which this gateway does not know. Anyone
	// can send such packets. It must not block.
	Stranger func(netip.AddrPort)
}

// Conn is a peer's TCP connection.
type Conn interface {
	net.Conn
	CloseWrite() error
	// Abort ends the connection with a reset.
	Abort()
}

// Gateway is the one peer of many devices. Make one with New. All methods are safe for concurrent use.
type Gateway struct {
	opts   Options
	log    *slog.Logger
	link   *ipstack.Link
	stack  *ipstack.Stack
	device *device.Device
	bind   *bind
	port   uint16

	changes sync.Mutex // serializes changes of the peers; held while calling WireGuard

	mu     sync.Mutex // guards the fields below
	peers  map[netip.Addr]*peer
	echoes int

	done       chan struct{}
	background sync.WaitGroup
}

// peer is the state of a Peer. Gateway.mu guards it.
type peer struct {
	key    Key
	flows  map[*flow]struct{}
	echoes int // that wait for the owner
}

// flow is a connection or flow of a peer.
type flow struct{ abort func() }

// New returns a gateway that listens, and has no peers. The caller must close it.
func New(opts Options) (*Gateway, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{opts: opts, log: opts.Logger, peers: map[netip.Addr]*peer{}, done: make(chan struct{})}
	g.link = ipstack.NewLink(nil, ipstack.MTU)
	g.link.Admit = g.admit
	stack, err := ipstack.New(g.link, ipstack.Options{
		Addr: opts.Addr, Others: opts.Prefix, SendBuffer: sendBuffer, RecvBuffer: recvBuffer, Log: g.log,
		Admit:     func(src, _ netip.AddrPort) bool { return g.known(src.Addr()) },
		AcceptTCP: g.acceptTCP, AcceptUDP: g.acceptUDP,
	})
	if err != nil {
		return nil, err
	}
	g.stack = stack
	g.bind = newBind(opts.Stranger)
	g.device = device.NewDevice(&tunDevice{g.link, make(chan tun.Event)}, g.bind, &device.Logger{
		Verbosef: g.verbose,
		Errorf:   func(format string, args ...any) { g.log.Debug("wireguard: " + fmt.Sprintf(format, args...)) },
	})
	if err := g.listen(); err != nil {
		g.device.Close()
		g.stack.Close()
		return nil, err
	}
	g.background.Go(g.look)
	return g, nil
}

func (g *Gateway) listen() error {
	if err := g.device.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=%d\n", g.opts.PrivateKey, g.opts.Port)); err != nil {
		return fmt.Errorf("configure WireGuard: %w", err)
	}
	if err := g.device.Up(); err != nil {
		return fmt.Errorf("listen at UDP port %d: %w", g.opts.Port, err)
	}
	settings, err := g.device.IpcGet()
	if err != nil {
		return fmt.Errorf("ask WireGuard for its port: %w", err)
	}
	for line := range strings.Lines(settings) {
		if n, _ := fmt.Sscanf(line, "listen_port=%d", &g.port); n == 1 {
			return nil
		}
	}
	return errors.New("WireGuard has no port")
}

// Port returns the UDP port that the gateway listens at.
func (g *Gateway) Port() uint16 { return g.port }

// Close ends all connections, and waits until everything in the gateway has stopped. It must be called once.
func (g *Gateway) Close() {
	close(g.done)
	g.background.Wait()
	g.mu.Lock()
	gone := g.peers
	g.peers = map[netip.Addr]*peer{}
	g.mu.Unlock()
	g.abort(gone)
	g.device.Close()
	g.stack.Close()
}

// abort resets the connections of peers that are no longer in the table, so their flows are abort's. It waits until the
// resets have left, as far as the devices can be reached.
func (g *Gateway) abort(gone map[netip.Addr]*peer) {
	maps.DeleteFunc(gone, func(_ netip.Addr, p *peer) bool { return len(p.flows) == 0 })
	if len(gone) == 0 {
		return
	}
	settings, err := g.device.IpcGet()
	if err != nil {
		g.log.Error("cannot ask WireGuard for its peers", "err", err)
	}
	live := map[Key]bool{}
	for _, s := range states(settings) {
		live[s.Key] = time.Since(s.Handshake) < sessionLife
	}
	began, expected := time.Now(), 0
	marks := g.bind.expect(len(gone))
	for addr, p := range gone {
		for f := range p.flows {
			f.abort()
		}
		if live[p.key] {
			g.link.Queue(mark(g.opts.Addr, addr))
			expected++
		}
	}
	patience := time.NewTimer(resetPatience)
	defer patience.Stop()
	for range expected {
		select {
		case <-marks:
		case <-patience.C:
			g.log.Warn("cannot tell whether connections of removed devices were reset")
			return
		}
	}
	if expected < len(gone) {
		time.Sleep(resetGrace - time.Since(began))
	}
}

// Set adds peers that are not there yet. One whose address has changed is another peer, and takes the place of the
// former.
func (g *Gateway) Set(peers ...Peer) error {
	g.changes.Lock()
	defer g.changes.Unlock()
	var errs []error
	for _, p := range peers {
		g.mu.Lock()
		have := g.peers[p.Addr]
		g.mu.Unlock()
		if have != nil && have.key == p.Key {
			continue
		}
		if have != nil {
			g.remove(have.key)
		}
		if g.serves(p.Key) {
			g.remove(p.Key)
		}
		config := fmt.Sprintf("public_key=%x\nreplace_allowed_ips=true\nallowed_ip=%s/128\n", p.Key, p.Addr)
		if err := g.device.IpcSet(config); err != nil {
			errs = append(errs, fmt.Errorf("add peer %s: %w", p.Addr, err))
			continue
		}
		g.mu.Lock()
		g.peers[p.Addr] = &peer{key: p.Key, flows: map[*flow]struct{}{}}
		g.mu.Unlock()
	}
	return errors.Join(errs...)
}

// serves reports whether a key is a peer's.
func (g *Gateway) serves(key Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.peers {
		if p.key == key {
			return true
		}
	}
	return false
}

// Remove removes peers, and resets their connections. When it returns, the gateway is silent for them.
func (g *Gateway) Remove(keys ...Key) {
	g.changes.Lock()
	defer g.changes.Unlock()
	g.remove(keys...)
}

// remove is Remove with changes held.
func (g *Gateway) remove(keys ...Key) {
	gone := map[Key]bool{}
	for _, k := range keys {
		gone[k] = true
	}
	removed := map[netip.Addr]*peer{}
	g.mu.Lock()
	for addr, p := range g.peers {
		if gone[p.key] {
			delete(g.peers, addr)
			removed[addr] = p
		}
	}
	g.mu.Unlock()
	g.abort(removed)
	for _, k := range keys {
		g.device.RemovePeer(k)
	}
}

// Wake begins a handshake with a peer that is believed to be at an address. The address is used until the peer is heard
// from another one.
func (g *Gateway) Wake(key Key, at netip.AddrPort) error {
	p := g.device.LookupPeer(key)
	if p == nil {
		return errors.New("no such peer")
	}
	endpoint, err := g.bind.ParseEndpoint(at.String())
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", at, err)
	}
	p.SetEndpointFromPacket(endpoint)
	return p.SendHandshakeInitiation(false)
}

// outdated is what WireGuard logs, with the peer, of a handshake that proves the peer's key and drops: its time is not
// later than that of the peer's last one.
const outdated = "%v - ConsumeMessageInitiation: handshake replay @ %v"

// verbose is called with what WireGuard logs in detail, holding none of its locks. A peer whose clock was set back
// begins handshakes in vain until the clock has caught up, but answers them, so the gateway begins one, where the peer
// was last: see the package engine.
func (g *Gateway) verbose(format string, args ...any) {
	if format != outdated {
		return
	}
	if p, ok := args[0].(*device.Peer); ok {
		if err := p.SendHandshakeInitiation(false); err != nil {
			g.log.Debug("cannot begin a handshake with a device whose clock was set back", "err", err)
		}
	}
}

// look tells the owner where peers are, until the gateway is closed.
func (g *Gateway) look() {
	next := time.NewTimer(lookEvery)
	defer next.Stop()
	var heard uint64
	var took time.Duration
	last := map[Key]state{}
	for ; ; next.Reset(max(lookEvery, lookShare*took)) {
		select {
		case <-next.C:
		case <-g.done:
			return
		}
		took = 0
		now := g.bind.heard.Load()
		if now == heard {
			continue
		}
		heard = now
		began := time.Now()
		settings, err := g.device.IpcGet()
		if err != nil {
			g.log.Error("cannot ask WireGuard for its peers", "err", err)
			continue
		}
		var news []Sighting
		news, last = g.compare(last, states(settings))
		if took = time.Since(began); len(news) > 0 {
			g.opts.Seen(news)
		}
	}
}

// Endpoint returns where a peer is that has a session. It lists all peers, so its cost grows with them.
func (g *Gateway) Endpoint(key Key) (netip.AddrPort, bool) {
	settings, err := g.device.IpcGet()
	if err != nil {
		g.log.Error("cannot ask WireGuard for its peers", "err", err)
		return netip.AddrPort{}, false
	}
	for _, s := range states(settings) {
		if s.Key == key {
			return s.Endpoint, true
		}
	}
	return netip.AddrPort{}, false
}

// Answered reports whether all peers with the given keys have a session. It lists all peers, so its cost grows with
// them.
func (g *Gateway) Answered(keys ...Key) bool {
	settings, err := g.device.IpcGet()
	if err != nil {
		g.log.Error("cannot ask WireGuard for its peers", "err", err)
		return false
	}
	there := map[Key]bool{}
	for _, s := range states(settings) {
		there[s.Key] = true
	}
	return !slices.ContainsFunc(keys, func(key Key) bool { return !there[key] })
}

// compare returns what is new since the last look, and what there is now. A peer that sends packets of sessions of
// which none is this gateway's has a session with another one: its address becomes a stranger's.
func (g *Gateway) compare(last map[Key]state, now []state) (news []Sighting, next map[Key]state) {
	var known []netip.AddrPort
	next = make(map[Key]state, len(now))
	for _, s := range now {
		if time.Since(s.Handshake) >= sessionLife {
			continue
		}
		next[s.Key] = s
		known = append(known, s.Endpoint)
		if s.Sighting != last[s.Key].Sighting {
			news = append(news, s.Sighting)
		}
	}
	counted := g.bind.setKnown(known)
	for key, s := range next {
		before := last[key]
		if counted[s.Endpoint] > 0 && before.Sighting == s.Sighting && before.received == s.received {
			g.bind.forget(s.Endpoint)
		}
	}
	return news, next
}

// state is what WireGuard knows of a peer that has a session.
type state struct {
	Sighting
	received uint64 // bytes that were the peer's
}

// states returns the peers that have a session from WireGuard's settings, in the form of its configuration protocol
// (https://www.wireguard.com/xplatform/).
func states(settings string) (seen []state) {
	var s state
	add := func() {
		if s.Endpoint.IsValid() && !s.Handshake.IsZero() {
			seen = append(seen, s)
		}
	}
	for line := range strings.Lines(settings) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "public_key":
			add()
			s = state{}
			_, _ = hex.Decode(s.Key[:], []byte(value)) // WireGuard wrote it
		case "endpoint":
			at, _ := netip.ParseAddrPort(value)
			s.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		case "last_handshake_time_sec":
			var sec int64
			if n, _ := fmt.Sscan(value, &sec); n == 1 && sec > 0 {
				s.Handshake = time.Unix(sec, 0)
			}
		case "rx_bytes":
			s.received, _ = strconv.ParseUint(value, 10, 64) // WireGuard wrote it
		}
	}
	add()
	return seen
}

// tunDevice is the link as WireGuard sees it.
type tunDevice struct {
	*ipstack.Link
	events chan tun.Event
}

var _ tun.Device = (*tunDevice)(nil)

func (t *tunDevice) File() *os.File           { return nil }
func (t *tunDevice) MTU() (int, error)        { return ipstack.MTU, nil }
func (t *tunDevice) Name() (string, error)    { return "devices", nil }
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

func (t *tunDevice) BatchSize() int {
	if ipstack.Batched() {
		return conn.IdealBatchSize
	}
	return 1
}

func (t *tunDevice) Close() error {
	t.Link.Close()
	close(t.events) // the device calls Close once
	return nil
}
