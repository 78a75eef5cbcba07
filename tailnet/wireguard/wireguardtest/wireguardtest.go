// Package wireguardtest has devices of the reference implementation for tests, with a network stack of their own.
package wireguardtest

import (
	"crypto/ecdh"
	"crypto/rand"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/device"

	"github.com/codermesh/codermesh/v2/tailnet/wireguard/stock"
)

// Initiation is the first byte of a message that begins a handshake.
const Initiation = device.MessageInitiationType

// Key is a Curve25519 key, public or private.
type Key = stock.Key

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
type Device = stock.Device

// New starts a device, as stock.Start does. It stops with the test.
func New(t testing.TB, private Key, addr netip.Addr, gateway Key, port uint16, allowed netip.Prefix) *Device {
	t.Helper()
	d, err := stock.Start(private, addr, gateway, port, allowed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
