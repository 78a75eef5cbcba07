package wggateway_test

import (
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// balancer passes one device's packets to one of several servers, from the same address. Once it has moved to another server, it loses the handshakes
// that the device begins.
type balancer struct {
	phones, servers *net.UDPConn

	mu     sync.Mutex // guards the fields below
	moved  bool
	target netip.AddrPort
	phone  netip.AddrPort
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listen := func() *net.UDPConn {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	b := &balancer{phones: listen(), servers: listen()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		b.phones.Close()
		b.servers.Close()
		wg.Wait()
	})
	carry := func(in, out *net.UDPConn, note func(from netip.AddrPort, begins bool) netip.AddrPort) {
		buf := make([]byte, 65536)
		for {
			n, from, err := in.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if to := note(from, n > 0 && buf[0] == wireguardtest.Initiation); to.IsValid() {
				_, _ = out.WriteToUDPAddrPort(buf[:n], to)
			}
		}
	}
	wg.Go(func() {
		carry(b.phones, b.servers, func(from netip.AddrPort, begins bool) netip.AddrPort {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.phone = from
			if begins && b.moved {
				return netip.AddrPort{}
			}
			return b.target
		})
	})
	wg.Go(func() {
		carry(b.servers, b.phones, func(from netip.AddrPort, _ bool) netip.AddrPort {
			b.mu.Lock()
			defer b.mu.Unlock()
			if from != b.target {
				return netip.AddrPort{} // the other server is cut off
			}
			return b.phone
		})
	})
	return b
}

// point passes packets to a server from now on.
func (b *balancer) point(s *coderdtest.Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved = b.target.IsValid()
	b.target = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.WireGuard.Port())
}

// TestServers checks that a device whose packets another server gets goes on there: that server begins a session as soon as it hears the device.
func TestServers(t *testing.T) {
	t.Parallel()
	var servers []*coderdtest.Server
	for i := range 2 {
		servers = append(servers, coderdtest.Start(t, func(o *coderd.Options) {
			if i > 0 {
				o.DB, o.States = servers[0].DB, servers[0].States
			}
			o.WireGuardAddress, o.WireGuardAccess = ":0", "127.0.0.1:51820"
		}))
	}
	a, b := servers[0], servers[1]
	testwait.Until(t, "the servers are linked", func() error { return testwait.Len(a.Mesh.Linked(), 1) })
	template := a.Template("process", nil).ID
	_, agent := a.Running("ada", "dev", template)
	a.Join(coderdtest.AsAgent(coderdtest.Token(agent).Reveal())).Joined().Serve(8000, coderdtest.Echo)

	private, public := wireguardtest.NewKey(t)
	made, err := a.As("ada").CreateUserDevice(t.Context(), sdk.Me, sdk.CreateUserDeviceRequest{Name: "phone", PublicKey: wgquick.Key(public).String()})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := b.As("ada").WireGuardGateway(t.Context()) // both servers have one key
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := wgquick.ParseKey(shown.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	between := newBalancer(t)
	between.point(a)
	port := between.phones.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	p := &phone{wireguardtest.New(t, private, netip.MustParseAddr(made.Address), gateway, port, netip.MustParsePrefix(shown.Prefix)), made.ID}
	p.reaches(t, agent, 8000)
	testwait.Until(t, "it is stored where the device is",
		a.Counts(1, `SELECT count(*) FROM user_devices WHERE id = $1 AND endpoint IS NOT NULL AND last_used_at IS NOT NULL`, made.ID))

	for _, next := range []*coderdtest.Server{b, a} {
		between.point(next)
		p.reaches(t, agent, 8000)
	}
	// A device that is removed at one server is silent at the other.
	c := p.reaches(t, agent, 8000)
	if err := b.As("ada").DeleteUserDevice(t.Context(), sdk.Me, made.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := testwait.ReadFull(c, make([]byte, 1)); err == nil {
		t.Error("a removed device goes on at the other server")
	}
}
