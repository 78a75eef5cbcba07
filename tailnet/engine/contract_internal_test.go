package engine

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"tailscale.com/net/netmon"
	"tailscale.com/net/packet"
	"tailscale.com/tailcfg"
	"tailscale.com/types/ipproto"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// Each test in this file checks one assumption about a library that the library does not guarantee. If one fails after an
// update, its name and comment state what the engine builds on it.

// TestContractSendsAreCountedAtOnce checks that magicsock counts what it sends on the sending goroutine, before Send
// returns, and identifies a relay by a magic address. The bind learns from this where a peer's packets go.
func TestContractSendsAreCountedAtOnce(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"relay", "direct"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			join := relayed
			if path == "direct" {
				join = direct
			}
			a, b := join(t, nil)
			exchange(t, a, b, 1000)
			var ep conn.Endpoint
			testwait.Until(t, "the peer has an endpoint", func() error {
				ep = a.bind.endpoint(b.public)
				return testwait.Unless(ep != nil, "it has none")
			})
			r := a.peers.byKey(rawOf(b.public)).route
			r.mu.Lock() // keeps WireGuard from sending
			defer r.mu.Unlock()
			var counted []netip.AddrPort
			a.magic.SetConnectionCounter(func(_ ipproto.Proto, src, dst netip.AddrPort, _, _ int, recv bool) {
				if !recv && src.Addr() == b.opts.Addr {
					counted = append(counted, dst) // the race detector would catch another goroutine here
				}
			})
			err := a.magic.Send([][]byte{probePacket()}, ep, packet.GeneveFixedHeaderLength)
			a.magic.SetConnectionCounter(nil)
			if err != nil || len(counted) != 1 {
				t.Fatalf("counted %v, %v; want one", counted, err)
			}
			if isRelay := counted[0] == netip.AddrPortFrom(tailcfg.DerpMagicIPAddr, 1); isRelay != (path == "relay") {
				t.Errorf("packet went to %v", counted[0])
			}
		})
	}
}

// TestContractEndpointTellsAddress checks that magicsock's endpoint for a peer reveals the peer's first address: the bind
// finds its route by that address.
func TestContractEndpointTellsAddress(t *testing.T) {
	t.Parallel()
	a, b := direct(t, nil)
	ep := a.bind.endpoint(b.public)
	if ep == nil || ep.DstIP() != b.opts.Addr {
		t.Errorf("got %v, want %v", ep, b.opts.Addr)
	}
}

// TestContractOneByteIsIgnored checks that WireGuard ignores the one-byte packet that the bind sends to see where packets
// go.
func TestContractOneByteIsIgnored(t *testing.T) {
	t.Parallel()
	a, b := direct(t, nil)
	exchange(t, a, b, 1000)
	rx, _ := b.Traffic(rawOf(a.public))
	c, err := net.Dial("udp4", local(b).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 100 {
		if _, err := c.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, a, b, 1000)
	if now, _ := b.Traffic(rawOf(a.public)); now < rx {
		t.Errorf("the session was replaced: %d bytes, %d before", now, rx)
	}
}

// TestContractSocketsAllowFragments checks that magicsock opens all its sockets through TestOnlyPacketListener, including
// those after a Rebind. They must let routers fragment packets.
func TestContractSocketsAllowFragments(t *testing.T) {
	t.Parallel()
	a := newEngine(t, nil)
	for _, when := range []string{"at first", "after a rebind"} {
		if set, err := a.magic.DontFragSetting(); set || err != nil {
			t.Errorf("%s: packets may not be fragmented: %v, %v", when, set, err)
		}
		a.Rebind()
	}
}

// TestContractSourceIsBoundToKey checks that WireGuard drops a packet whose source address is not that of the peer whose
// key it came with. All policy is by address.
func TestContractSourceIsBoundToKey(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	mallory := netip.MustParseAddr("fd00::bad")
	a, b := direct(t, func(o *Options) {
		o.AdmitEcho = func(from netip.Addr) bool {
			if from == mallory {
				seen.Add(1)
			}
			return true
		}
	})
	exchange(t, a, b, 1000)
	a.nic.Inject(echoRequest(mallory, b.opts.Addr, 1))
	answered := make(chan struct{}, 1)
	a.Echo(b.opts.Addr, func() { answered <- struct{}{} }) // once this packet has arrived, so has the previous one
	select {
	case <-answered:
	case <-timeout(t).Done():
		t.Fatal("no echo")
	}
	if seen.Load() != 0 {
		t.Error("a packet with a foreign source came through")
	}
}

// TestContractStackAsksAndIsSilent checks that the stack asks about each flow that it has no connection for, and sends
// nothing when the handler reports the packet as handled.
func TestContractStackAsksAndIsSilent(t *testing.T) {
	t.Parallel()
	var admit atomic.Bool
	a, b := direct(t, func(o *Options) { o.Admit = func(netip.Addr, uint16) bool { return admit.Load() } })
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := a.DialTCP(short, netip.AddrPortFrom(b.opts.Addr, 7)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial a port that is not admitted: got %v, want a timeout", err)
	}
	admit.Store(true)
	exchange(t, a, b, 1000)
}

// TestContractRefusal checks that the stack refuses a connection at once when there is no handler for it.
func TestContractRefusal(t *testing.T) {
	t.Parallel()
	a, b := direct(t, func(o *Options) { o.AcceptTCP = func(_, _ netip.AddrPort) func(Conn) { return nil } })
	if _, err := a.DialTCP(timeout(t), netip.AddrPortFrom(b.opts.Addr, 7)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestContractAbort checks that Abort ends a connection whose other end will never answer: the stack stops sending for it.
func TestContractAbort(t *testing.T) {
	t.Parallel()
	a, b := direct(t, nil)
	c, err := a.DialTCP(timeout(t), netip.AddrPortFrom(b.opts.Addr, 7))
	if err != nil {
		t.Fatal(err)
	}
	a.Remove(rawOf(b.public))
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c.Over() {
		t.Error("a closed connection with unacknowledged bytes is over already")
	}
	c.Abort()
	testwait.Until(t, "the connection is over", func() error { return testwait.Unless(c.Over(), "bytes wait for a peer that is gone") })
}

// TestContractSegments checks that segments from the stack are split into packets that fit the tunnel and joined on the
// other side.
func TestContractSegments(t *testing.T) {
	t.Parallel()
	a, b := direct(t, nil)
	exchange(t, a, b, 4<<20)
}

// TestContractFlows checks that a flow's datagrams pass in both directions, and that ICMP reports a closed port.
func TestContractFlows(t *testing.T) {
	t.Parallel()
	a, b := direct(t, func(o *Options) {
		echo := o.AcceptUDP
		o.AcceptUDP = func(src, dst netip.AddrPort) func(*UDPConn) {
			if dst.Port() != 7 {
				return nil
			}
			return echo(src, dst)
		}
	})
	exchange(t, a, b, 100) // there is a session
	dial := func(port uint16) *UDPConn {
		c, err := a.DialUDP(netip.AddrPortFrom(b.opts.Addr, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	open := dial(7)
	if _, err := open.Write([]byte("datagram")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := open.Read(buf); err != nil || string(buf[:n]) != "datagram" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	closed := dial(8)
	testwait.Until(t, "ICMP reports that the port is closed", func() error {
		_, err := closed.Write([]byte("datagram"))
		return testwait.Unless(err != nil && strings.Contains(err.Error(), "refused"), "a write ends with %v", err)
	})
}

// TestContractMoves checks that changes reported by the network monitor are distinguished: a different default interface is
// a move, which the owner handles.
func TestContractMoves(t *testing.T) {
	t.Parallel()
	var moves atomic.Int64
	a := newEngine(t, func(o *Options) { o.Moved = func(string) { moves.Add(1) } })
	up := *a.netmon.InterfaceState()
	for _, step := range []struct {
		what  string
		delta netmon.ChangeDelta
		known bool
		want  int64
	}{
		{"the first look", netmon.ChangeDelta{IsInitialState: true, DefaultInterfaceChanged: true}, false, 0},
		{"another address", netmon.ChangeDelta{InterfaceIPsChanged: true, RebindLikelyRequired: true}, false, 0},
		{"another interface", netmon.ChangeDelta{DefaultInterfaceChanged: true}, false, 1},
		{"an interface that was noticed", netmon.ChangeDelta{DefaultInterfaceChanged: true}, true, 1},
	} {
		a.interfacesChanged(step.delta, up.AnyInterfaceUp(), step.known)
		if got := moves.Load(); got != step.want {
			t.Errorf("%s: %d moves, want %d", step.what, got, step.want)
		}
	}
}

// TestContractDiscoThroughShim checks that magicsock keeps its connection to the shim and accepts disco messages from
// it: pings return through the relay.
func TestContractDiscoThroughShim(t *testing.T) {
	t.Parallel()
	a, b := relayed(t, nil)
	pongs := make(chan Pong, 1)
	a.Ping(rawOf(b.public), func(p Pong) { pongs <- p })
	select {
	case p := <-pongs:
		if p.Err != "" || p.Endpoint.IsValid() || p.Region != "test" {
			t.Errorf("got %+v", p)
		}
	case <-timeout(t).Done():
		t.Fatal("no answer")
	}
}

// TestContractTrafficIsNoticed checks that magicsock repeats its measurement of mappings only while packets pass through
// the tunnel: it asks how long there have been none.
func TestContractTrafficIsNoticed(t *testing.T) {
	t.Parallel()
	a, b := direct(t, nil)
	if idle := a.nic.Idle(); idle < time.Hour {
		t.Errorf("before any packet: idle for %s", idle)
	}
	exchange(t, a, b, 1000)
	for _, e := range []*Engine{a, b} {
		if idle := e.nic.Idle(); idle > patience {
			t.Errorf("after an exchange: idle for %s", idle)
		}
	}
}

// TestContractSilentSTUN checks that measuring the network keeps direct paths where no relay has a STUN server. magicsock
// forgets them if its previous measurement could not send anything.
func TestContractSilentSTUN(t *testing.T) {
	t.Parallel()
	var rebinds atomic.Int64
	watch := logged(func(line string) {
		if strings.Contains(line, "Rebinding") {
			rebinds.Add(1)
		}
	})
	a, _ := direct(t, func(o *Options) { o.Log = slog.New(watch) })
	a.SetRelays([]Relay{newRelay(t)}, 1)
	for range 2 {
		before, _ := a.Measured(t.Context())
		testwait.Until(t, "the network is measured", func() error {
			a.Measure("test")
			now, ok := a.Measured(t.Context())
			return testwait.Unless(ok && now.At.After(before.At), "measured (%t) at %s, before at %s", ok, now.At, before.At)
		})
	}
	if n := rebinds.Load(); n > 0 {
		t.Errorf("magicsock opened new sockets %d times", n)
	}
}

// logged is a slog.Handler that passes on the lines that the libraries log.
type logged func(line string)

func (l logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l logged) WithGroup(string) slog.Handler            { return l }
func (l logged) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		l(a.Value.String())
		return true
	})
	return nil
}
