package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"tailscale.com/net/netmon"
	"tailscale.com/tailcfg"
)

// Endpoint is an address at which the node may be reached.
type Endpoint struct {
	Addr netip.AddrPort
	STUN bool // a STUN server observed this address
}

// endpoints is called by magicsock with its locks held.
func (e *Engine) endpoints(found []tailcfg.Endpoint) {
	if e.opts.RelayOnly || e.relayOnly.Load() || len(found) == 0 {
		return
	}
	endpoints := make([]Endpoint, 0, len(found))
	for _, ep := range found {
		if ep.Addr.Port() != 0 { // as those of a dead socket are
			endpoints = append(endpoints, Endpoint{Addr: ep.Addr, STUN: ep.Type == tailcfg.EndpointSTUN})
		}
	}
	e.opts.Endpoints(endpoints)
}

// LocalAddrs returns the machine's own addresses: those that others may reach, and loopback addresses.
func LocalAddrs() (regular, loopback []netip.Addr, err error) { return netmon.LocalAddresses() }

// Measure makes magicsock measure the network. It does not wait. reason is for the log.
func (e *Engine) Measure(reason string) { e.magic.ReSTUN(reason) }

// KeepMeasuring sets whether magicsock repeats its measurements while no packets pass. Otherwise it stops 45 seconds
// after the last one.
func (e *Engine) KeepMeasuring(on bool) { e.measuring.Store(on) }

// idle tells magicsock how long no packets have passed.
func (e *Engine) idle() time.Duration {
	if e.measuring.Load() {
		return 0
	}
	return e.nic.Idle()
}

// Measured returns the result of the latest measurement of the network. ok is false before the first. It may wait for a
// measurement in progress.
func (e *Engine) Measured(ctx context.Context) (_ Netcheck, ok bool) {
	report := e.magic.GetLastNetcheckReport(ctx)
	if report == nil {
		return Netcheck{}, false
	}
	return netcheckOf(report), true
}

// RelayOnly reports whether the node has no direct paths: its options or SetRelayOnly say so, or the machine cannot
// open UDP sockets. Rebind may change it.
func (e *Engine) RelayOnly() bool { return e.opts.RelayOnly || e.relayOnly.Load() || !e.udp.open() }

// SetRelayOnly turns direct paths off, or on again unless the options turn them off. The owner then calls ForgetPaths
// for all peers.
func (e *Engine) SetRelayOnly(on bool) {
	e.relayOnly.Store(on)
	e.magic.SetOnlyTCP443(e.RelayOnly())
}

// Rebind opens new sockets and forgets which direct paths were proven. Relay connections are renewed.
func (e *Engine) Rebind() {
	e.reopen()
	e.RenewRelays()
}

func (e *Engine) reopen() {
	e.magic.Rebind()
	e.magic.SetOnlyTCP443(e.RelayOnly())
}

const (
	// settle is how long changes of a machine's network come in a row: a link, its address, its routes.
	settle = 20 * time.Millisecond
	// leaving is how long a machine that has moved may keep the links of its former place. A path that was proven
	// meanwhile may have led through them.
	leaving = 5 * time.Second
)

// watchLinks reacts to changes of the machine's network interfaces. netmon looks at the first one of a row, and then at
// none for a second, so watchLinks finds out at once whether the machine is where it was, if netlink reports changes.
func (e *Engine) watchLinks() {
	at := placeNow()
	for {
		select {
		case <-e.done:
			return
		case <-e.routeChanged:
			select {
			case <-e.done:
				return
			case <-time.After(settle):
			}
			if now := placeNow(); now.from.IsValid() && at.moved(now) {
				e.magic.SetNetworkUp(true)
				route, _ := netmon.DefaultRouteInterface() // for the log
				e.opts.Moved(route)                        // the owner calls Rebind
			}
		case delta := <-e.linkEvents:
			moved := at.moved(placeNow())
			known := e.netlink != nil && delta.DefaultInterfaceChanged && !moved // the owner has called Rebind
			e.interfacesChanged(delta, delta.AnyInterfaceUp(), known)
		}
	}
}

// readNetlink pokes routeChanged for each message, until netlink is closed.
func (e *Engine) readNetlink(netlink io.Reader) {
	some := make([]byte, 1) // the rest of a message is dropped
	for {
		if _, err := netlink.Read(some); err != nil && !errors.Is(err, syscall.ENOBUFS) {
			return
		}
		e.routeChanged.Poke()
	}
}

// place is where a machine is in the network.
type place struct {
	from  netip.Addr   // the address from which it reaches others
	own   []netip.Addr // its addresses
	seen  time.Time
	since time.Time // when it came there; zero if it was there at the beginning
}

func placeNow() place {
	own, _, _ := LocalAddrs() // none is a difference, too
	return place{from: source(), own: own, seen: time.Now()}
}

// moved reports whether the machine is elsewhere than before, or has left its former place just now. It is elsewhere if
// it reaches no one.
func (p *place) moved(now place) bool {
	elsewhere := now.from != p.from || !now.from.IsValid()
	left := now.seen.Sub(p.since) < leaving && !slices.Equal(now.own, p.own)
	now.since = p.since
	if elsewhere {
		now.since = now.seen
	}
	*p = now
	return elsewhere || left
}

// source returns the address from which this machine reaches others, and the zero value if it has no route to them. It
// sends nothing.
func source() netip.Addr {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // of documentation, so that they are no one's
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
		if err != nil {
			continue
		}
		from := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		c.Close()
		return from
	}
	return netip.Addr{}
}

// interfacesChanged acts on what netmon saw. known: the owner has heard of the new default interface.
func (e *Engine) interfacesChanged(delta netmon.ChangeDelta, up, known bool) {
	e.magic.SetNetworkUp(up)
	if !up {
		return
	}
	moved := !delta.IsInitialState && (delta.DefaultInterfaceChanged && !known || delta.AvailableProtocolsChanged)
	switch {
	case moved:
		e.opts.Moved(delta.DefaultRouteInterface) // the owner calls Rebind
	case delta.RebindLikelyRequired:
		e.reopen()
		e.magic.ReSTUN("link change")
	default:
		e.magic.ReSTUN("link change")
	}
}
