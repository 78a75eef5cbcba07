package engine

import (
	"context"
	"net/netip"
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

// watchLinks reacts to changes of the machine's network interfaces.
func (e *Engine) watchLinks() {
	for {
		select {
		case <-e.done:
			return
		case delta := <-e.linkEvents:
			e.interfacesChanged(delta, delta.AnyInterfaceUp())
		}
	}
}

func (e *Engine) interfacesChanged(delta netmon.ChangeDelta, up bool) {
	e.magic.SetNetworkUp(up)
	if !up {
		return
	}
	moved := !delta.IsInitialState && (delta.DefaultInterfaceChanged || delta.AvailableProtocolsChanged)
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
