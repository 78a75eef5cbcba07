// Package wireguardtest has devices of the reference implementation for tests, with a network stack of their own.
package wireguardtest

import (
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

// Initiation is the first byte of a message that begins a handshake.
const Initiation = device.MessageInitiationType

// Key is a Curve25519 key, public or private.
type Key = [32]byte

// NewKey returns a key pair.
func NewKey(t testing.TB) (private, public Key) {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Key(k.Bytes()), Key(k.PublicKey().Bytes())
}

// Device is a device whose only peer is a gateway on this machine.
type Device struct {
	*netstack.Net
	WireGuard *device.Device
	Addr      netip.Addr
}

// New starts a device with a private key and an address. It sends nothing before something is dialed. It stops with the
// test.
func New(t testing.TB, private Key, addr netip.Addr, gateway Key, port uint16, allowed netip.Prefix) *Device {
	t.Helper()
	tun, stack, err := netstack.CreateNetTUN([]netip.Addr{addr}, nil, 1280)
	if err != nil {
		t.Fatal(err)
	}
	d := &Device{stack, device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, "")), addr}
	t.Cleanup(d.WireGuard.Close)
	config := fmt.Sprintf("private_key=%x\npublic_key=%x\nallowed_ip=%s\nendpoint=127.0.0.1:%d\n", private, gateway,
		allowed, port)
	if err := d.WireGuard.IpcSet(config); err != nil {
		t.Fatal(err)
	}
	if err := d.WireGuard.Up(); err != nil {
		t.Fatal(err)
	}
	return d
}
