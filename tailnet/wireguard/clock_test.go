package wireguard_test

import (
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

// initiation returns the handshake that a device begins at a time by its clock.
func initiation(t *testing.T, private, gateway wireguard.Key, at time.Time) (message []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(at))
		silent := device.NewLogger(device.LogLevelSilent, "")
		d := device.NewDevice(tuntest.NewChannelTUN().TUN(), conn.NewDefaultBind(), silent)
		defer d.Close()
		if err := d.SetPrivateKey(private); err != nil {
			t.Fatal(err)
		}
		p, err := d.NewPeer(gateway)
		if err != nil {
			t.Fatal(err)
		}
		msg, err := d.CreateMessageInitiation(p)
		if err != nil {
			t.Fatal(err)
		}
		if message, err = binary.Append(nil, binary.LittleEndian, msg); err != nil {
			t.Fatal(err)
		}
		var macs device.CookieGenerator
		macs.Init(gateway)
		macs.AddMacs(message)
	})
	return message
}

// TestClockOfDeviceSetBack checks that a device whose clock was set back by a day while the gateway runs still makes
// sessions.
func TestClockOfDeviceSetBack(t *testing.T) {
	t.Parallel()
	w := start(t)
	// The device's packets pass here, so that its earlier handshake comes from the same address.
	way, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	gatewayAt := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(w.Port())}
	answered := make(chan struct{})
	go func() {
		var deviceAt *net.UDPAddr
		buf := make([]byte, 64<<10)
		for {
			n, from, err := way.ReadFromUDP(buf)
			if err != nil {
				return
			}
			to := gatewayAt
			if from.Port == gatewayAt.Port {
				if to = deviceAt; to == nil {
					close(answered) // to the earlier handshake
					continue
				}
			} else {
				deviceAt = from
			}
			_, _ = way.WriteToUDP(buf[:n], to)
		}
	}()
	private, public := wireguardtest.NewKey(t)
	p := newPhone(t, w, "fd00:c0de:0:1::9", private, public)
	gateway, err := wireguard.PublicKey(w.key)
	if err != nil {
		t.Fatal(err)
	}
	p.Device = wireguardtest.New(t, private, p.peer.Addr, gateway, uint16(way.LocalAddr().(*net.UDPAddr).Port), prefix)
	if err := w.Set(p.peer); err != nil {
		t.Fatal(err)
	}
	if _, err := way.WriteToUDP(initiation(t, private, gateway, time.Now().Add(24*time.Hour)), gatewayAt); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the gateway answers the earlier handshake", answered)
	exchange(t, p.dial(t, echoes), 1000)
}
