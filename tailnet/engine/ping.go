package engine

import (
	"net/netip"
	"sync"
	"time"

	"tailscale.com/ipn/ipnstate"
)

// Pong is a peer's answer to a Ping.
type Pong struct {
	Latency time.Duration
	// Endpoint is where a direct answer came from. It is invalid if the answer came through the relay Region (a code).
	Endpoint netip.AddrPort
	Region   string
	Err      string // why the ping was not sent
}

// Ping pings a peer on each possible path and starts the search for a direct one. answered is called once, by another
// goroutine, with the first answer or the reason why nothing was sent; it is never called if no answer arrives.
func (e *Engine) Ping(k Key, answered func(Pong)) {
	r := e.peers.byKey(k)
	if r == nil {
		answered(Pong{Err: "the peer is gone"})
		return
	}
	e.magic.Ping(node(r), new(ipnstate.PingResult), 0, func(res *ipnstate.PingResult) {
		pong := Pong{
			Latency: time.Duration(res.LatencySeconds * float64(time.Second)), Region: res.DERPRegionCode, Err: res.Err,
		}
		if ep, err := netip.ParseAddrPort(res.Endpoint); err == nil {
			pong.Endpoint = ep
		}
		answered(pong)
	})
}

// Echo sends an ICMP echo request through the tunnel, which starts a WireGuard session if there is none. answered is
// called at most once, and may be nil. Only a peer that lets this node open some port answers; its answer means that it
// received what was sent before.
func (e *Engine) Echo(to netip.Addr, answered func()) {
	ident := e.echoes.begin(to, answered)
	e.nic.Inject(echoRequest(e.opts.Addr, to, ident))
}

// maxEchoes is how many echo requests may wait for an answer. Older ones are forgotten.
const maxEchoes = 256

// echoes holds the echo requests that may still be answered. The zero value is ready to use.
type echoes struct {
	mu   sync.Mutex
	next uint16
	open [maxEchoes]struct {
		to       netip.Addr
		answered func()
	}
}

func (s *echoes) begin(to netip.Addr, answered func()) (ident uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ident = s.next
	s.next++
	s.open[ident%maxEchoes].to, s.open[ident%maxEchoes].answered = to, answered
	return ident
}

// answered handles an answer from from. It ignores answers from peers other than the one the request went to.
func (s *echoes) answered(from netip.Addr, ident uint16) {
	s.mu.Lock()
	slot := &s.open[ident%maxEchoes]
	answered := slot.answered
	if slot.to == from {
		slot.answered = nil
	} else {
		answered = nil
	}
	s.mu.Unlock()
	if answered != nil {
		answered()
	}
}
