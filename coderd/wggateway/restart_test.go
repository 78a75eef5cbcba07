package wggateway_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/wggateway"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// stored are devices in a database: those that an earlier process of this server had, and those of others.
type stored struct{ left, others []devices.Device }

func (s stored) Active(context.Context) ([]devices.Device, error) {
	return append(s.left, s.others...), nil
}
func (s stored) Left(context.Context, time.Duration) ([]devices.Device, error) { return s.left, nil }
func (s stored) AtEndpoint(context.Context, netip.AddrPort) ([]devices.Device, error) {
	return nil, nil
}
func (s stored) Seen(context.Context, []devices.Sighting) error { return nil }

// TestRestart checks that a gateway begins a session with the devices of the process before it, without having heard them: their packets of the old
// session would be lost. Devices of other servers keep theirs.
func TestRestart(t *testing.T) {
	t.Parallel()
	device := func() (devices.Device, *net.UDPConn) {
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		_, public := wireguardtest.NewKey(t)
		return devices.Device{ID: uuid.New(), UserID: uuid.New(), Key: public, Endpoint: socket.LocalAddr().(*net.UDPAddr).AddrPort()}, socket
	}
	ours, here := device()
	others, there := device()
	private, _ := wireguardtest.NewKey(t)
	g := wggateway.New(wggateway.Options{PrivateKey: private, Devices: stored{[]devices.Device{ours}, []devices.Device{others}}})
	defer g.Stop()
	if err := g.Start(t.Context(), 0); err != nil {
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
