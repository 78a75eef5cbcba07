package engine

import (
	"encoding/binary"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"github.com/tailscale/wireguard-go/device"
	"github.com/tailscale/wireguard-go/tun/tuntest"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// initiation returns the handshake that an engine begins with a peer at a time by its clock.
func initiation(t *testing.T, from, to *Engine, at time.Time) (message []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(at))
		silent := device.NewLogger(device.LogLevelSilent, "")
		d := device.NewDevice(tuntest.NewChannelTUN().TUN(), conn.NewDefaultBind(), silent)
		defer d.Close()
		if err := d.SetPrivateKey(device.NoisePrivateKey(from.opts.Key)); err != nil {
			t.Fatal(err)
		}
		peer := device.NoisePublicKey(rawOf(to.public))
		p, err := d.NewPeer(peer)
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
		macs.Init(peer)
		macs.AddMacs(message)
	})
	return message
}

// deliver hands a message to an engine as a relay does, and waits until the engine has answered it.
func deliver(t *testing.T, from, to *Engine, message []byte) {
	t.Helper()
	_, before := to.Traffic(rawOf(from.public))
	to.bind.arrived(from.public, message, t.Context().Done())
	testwait.Until(t, "the handshake is answered", func() error {
		_, now := to.Traffic(rawOf(from.public))
		return testwait.Unless(now > before, "%d bytes were sent, as before", now)
	})
}

// TestClockSetBack checks that a node whose clock was set back still makes sessions, with open connections and new
// ones: at the node alone, and at both ends once both have forgotten their sessions.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]time.Duration{"an hour": time.Hour, "a day": 24 * time.Hour} {
		for where, both := range map[string]bool{"one end": false, "both ends": true} {
			t.Run(name+" at "+where, func(t *testing.T) {
				t.Parallel()
				a, b := relayed(t, nil)
				exchange(t, a, b, 1000)
				c, err := a.DialTCP(timeout(t), netip.AddrPortFrom(b.opts.Addr, 7))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				before := time.Now()
				deliver(t, a, b, initiation(t, a, b, before.Add(back)))
				if both {
					deliver(t, b, a, initiation(t, b, a, before.Add(back)))
					b.ResetSession(rawOf(a.public)) // as the owner does whose own clock was set back
				}
				a.ResetSession(rawOf(b.public))
				sent := []byte("still here")
				if _, err := c.Write(sent); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(sent))
				if _, err := testwait.ReadFull(c, got); err != nil || string(got) != string(sent) {
					t.Fatalf("the open connection carried %q, %v", got, err)
				}
				exchange(t, a, b, 1000)
				t.Logf("sessions again after %s", time.Since(before))
			})
		}
	}
}

// TestReplayedHandshake is an attack: copies of a handshake that a peer has begun long ago end no session, and make
// none that the attacker could use.
func TestReplayedHandshake(t *testing.T) {
	t.Parallel()
	a, b := relayed(t, nil)
	c, err := a.DialTCP(timeout(t), netip.AddrPortFrom(b.opts.Addr, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	old := initiation(t, a, b, time.Now().Add(-time.Hour))
	for range 20 {
		for range 5 {
			b.bind.arrived(a.public, old, t.Context().Done())
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}
