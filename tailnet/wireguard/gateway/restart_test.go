package gateway_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// stored is a House that knows devices.
type stored struct {
	gateway.House
	devices []gateway.Device
}

func (s stored) Devices(_ context.Context, user uuid.UUID) ([]gateway.Device, error) {
	return slices.DeleteFunc(slices.Clone(s.devices), func(d gateway.Device) bool { return user != uuid.Nil && d.User != user }), nil
}
func (s stored) AtEndpoint(context.Context, netip.AddrPort) ([]gateway.Device, error) {
	return nil, nil
}
func (s stored) Seen(context.Context, []gateway.Sighting) error { return nil }

// TestRestart checks that a gateway begins a session with the devices of the process before it, without having heard them: their packets of the old
// session would be lost. Devices of other servers keep theirs.
func TestRestart(t *testing.T) {
	t.Parallel()
	device := func() (gateway.Device, *net.UDPConn) {
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		_, public := wireguardtest.NewKey(t)
		return gateway.Device{ID: uuid.New(), User: uuid.New(), Key: public, Endpoint: socket.LocalAddr().(*net.UDPAddr).AddrPort()}, socket
	}
	ours, here := device()
	ours.Left = true
	others, there := device()
	private, _ := wireguardtest.NewKey(t)
	g := gateway.New(gateway.Options{PrivateKey: private, House: stored{nil, []gateway.Device{ours, others}}})
	defer g.Stop()
	if err := errors.Join(g.Listen(t.Context(), 0), g.Load(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := here.SetReadDeadline(time.Now().Add(testwait.Patience)); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 2048)
	if n, err := here.Read(packet); err != nil || packet[0] != wireguardtest.Initiation {
		t.Errorf("the device of the process before got %d bytes, %x, %v, want the beginning of a handshake", n, packet[:min(n, 1)], err)
	}
	g.Stop() // what it was about to send, it has sent
	if err := there.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := there.Read(packet); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("another server's device got %d bytes, %v", n, err)
	}
}

// TestRestartWaits checks that a device which is there has a session with the new process when that process says that it serves: what a program
// sends at once arrives. A device that is switched off does not keep the gateway from serving.
func TestRestartWaits(t *testing.T) {
	t.Parallel()
	private, gatewayKey := wireguardtest.NewKey(t)
	key, public := wireguardtest.NewKey(t)
	there := gateway.Device{ID: uuid.New(), User: uuid.New(), Key: public, Left: true}
	phone := wireguardtest.New(t, key, there.Addr(), gatewayKey, 9, tailnet.Prefix)
	settings, err := phone.WireGuard.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(settings, "listen_port=")
	port, _, _ = strings.Cut(port, "\n")
	there.Endpoint = netip.MustParseAddrPort("127.0.0.1:" + port)
	load := func(patience time.Duration, devices ...gateway.Device) *gateway.Gateway {
		g := gateway.New(gateway.Options{PrivateKey: private, House: stored{nil, devices}})
		t.Cleanup(g.Stop)
		g.SetAnswerTime(patience)
		if err := errors.Join(g.Listen(t.Context(), 0), g.Load(t.Context())); err != nil {
			t.Fatal(err)
		}
		return g
	}
	if !load(testwait.Patience, there).Answered(public) {
		t.Error("the gateway serves before the device has a session")
	}
	_, off := wireguardtest.NewKey(t)
	away := gateway.Device{ID: uuid.New(), User: uuid.New(), Key: off, Left: true, Endpoint: netip.MustParseAddrPort("127.0.0.1:9")}
	if load(time.Millisecond, away).Answered(off) {
		t.Error("a device that is switched off has a session")
	}
}

// asked is a House that notes whose were asked for.
type asked struct {
	stored
	users []uuid.UUID
}

func (a *asked) Devices(ctx context.Context, user uuid.UUID) ([]gateway.Device, error) {
	a.users = append(a.users, user)
	return a.stored.Devices(ctx, user)
}

// TestRecheckOfOneUser checks that a user's change costs a question about that user's devices, and changes those only.
func TestRecheckOfOneUser(t *testing.T) {
	t.Parallel()
	device := func(user uuid.UUID) gateway.Device {
		_, public := wireguardtest.NewKey(t)
		return gateway.Device{ID: uuid.New(), User: user, Key: public}
	}
	ada, bob := uuid.New(), uuid.New()
	phone, tablet, other := device(ada), device(ada), device(bob)
	house := &asked{stored: stored{nil, []gateway.Device{phone, tablet, other}}}
	private, _ := wireguardtest.NewKey(t)
	g := gateway.New(gateway.Options{PrivateKey: private, House: house})
	defer g.Stop()
	if err := errors.Join(g.Listen(t.Context(), 0), g.Load(t.Context())); err != nil {
		t.Fatal(err)
	}
	want := func(what string, want ...gateway.Device) {
		t.Helper()
		var addrs []netip.Addr
		for _, d := range want {
			addrs = append(addrs, d.Addr())
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		if got := g.Devices(); !slices.Equal(got, addrs) {
			t.Errorf("%s: %v may connect, want %v", what, got, addrs)
		}
	}
	recheck := func(user uuid.UUID) {
		t.Helper()
		if err := g.Recheck(t.Context(), user); err != nil {
			t.Fatal(err)
		}
	}
	want("at the start", phone, tablet, other)
	added := device(ada)
	house.devices = []gateway.Device{phone, added} // ada has another device instead of the tablet, and bob none
	recheck(ada)
	want("ada was asked about", phone, added, other)
	recheck(bob)
	want("bob was asked about", phone, added)
	// A key is registered again, by another user. This gateway hears of the new device first.
	moved := gateway.Device{ID: uuid.New(), User: bob, Key: added.Key}
	house.devices = []gateway.Device{phone, moved}
	recheck(bob)
	recheck(ada)
	want("a key has moved", phone, moved)
	if !g.Serves(moved.Key) {
		t.Error("the key that has moved cannot connect")
	}
	house.devices = nil
	recheck(uuid.Nil)
	want("all were asked about")
	if g.Serves(moved.Key) {
		t.Error("a removed key can connect")
	}
	if want := []uuid.UUID{uuid.Nil, ada, bob, bob, ada, uuid.Nil}; !slices.Equal(house.users, want) {
		t.Errorf("asked for the devices of %v, want %v", house.users, want)
	}
}
