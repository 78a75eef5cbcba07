package tailnet_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/uuid"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// newDevice starts a device of the reference implementation that is the node's only peer, and echoes at port 8.
func newDevice(t *testing.T, n *tailnet.Node) (id uuid.UUID, _ *netstack.Net) {
	t.Helper()
	id = uuid.New()
	tun, stack, err := netstack.CreateNetTUN([]netip.Addr{tailnet.Addr(id)}, nil, 1280)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(func() {
		_ = dev.Down() // first: a packet that arrives while the stack closes is answered into a closed channel
		dev.Close()
	})
	own := n.PublicKey()
	config := fmt.Sprintf("private_key=%x\nlisten_port=0\npublic_key=%x\nallowed_ip=%s/128\nendpoint=127.0.0.1:%d\n",
		secret.Bytes(), own[:], n.Addr(), n.Status().ListenOn)
	if err := dev.IpcSet(config); err != nil {
		t.Fatal(err)
	}
	if err := dev.Up(); err != nil {
		t.Fatal(err)
	}
	settings, err := dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	var port uint16
	for line := range lines(settings) {
		fmt.Sscanf(line, "listen_port=%d", &port)
	}
	if port == 0 {
		t.Fatal("the device has no port")
	}
	err = n.Upsert(tailnet.Peer{
		NodeInfo: tailnet.NodeInfo{
			ID: id, Key: tailnet.PublicKey(secret.PublicKey().Bytes()),
			Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)},
		},
		Inbound:       tailnet.InboundPorts(7),
		WireGuardOnly: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := stack.ListenTCPAddrPort(netip.AddrPortFrom(tailnet.Addr(id), 8))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 32<<10)
		for {
			k, err := c.Read(buf)
			if err != nil {
				return
			}
			c.Write(buf[:k])
		}
	}()
	return id, stack
}

// TestInteropWithWireGuard checks that the node speaks WireGuard on the wire. The other end is the unmodified reference
// userspace implementation, with its own network stack.
func TestInteropWithWireGuard(t *testing.T) {
	t.Parallel()
	n := tailnettest.NewNode(t, tailnettest.NewRelay(t), tailnet.Options{})
	id, stack := newDevice(t, n)
	tailnettest.Echo(t, n, 7)
	t.Run("node dials device", func(t *testing.T) {
		c, err := n.Dial(timeout(t), "tcp", netip.AddrPortFrom(tailnet.Addr(id), 8))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		exchange(t, c, 1<<20)
	})
	t.Run("device dials node", func(t *testing.T) {
		c, err := stack.DialContextTCPAddrPort(timeout(t), at(n, 7))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		exchange(t, c, 1<<20)
	})
	t.Run("device asks for more", func(t *testing.T) {
		ctx, cancel := shortly(t)
		defer cancel()
		if c, err := stack.DialContextTCPAddrPort(ctx, at(n, 9)); err == nil {
			c.Close()
			t.Error("a port that the policy does not allow was opened")
		}
	})
	if peers := n.Status().Peers; len(peers) != 1 || peers[0].LastHandshake.IsZero() {
		t.Errorf("status after the exchange: %+v", peers)
	}
}
