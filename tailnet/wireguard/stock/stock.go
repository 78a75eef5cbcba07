// Package stock runs devices of WireGuard's reference implementation, with a network stack of their own, for tests and
// measurements of the gateway. It knows nothing of the gateway but its key and port. No program of ours links it.
package stock

import (
	"fmt"
	"net/netip"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

// Key is a Curve25519 key, public or private.
type Key = [32]byte

// Device is a device whose only peer is a gateway on this machine.
type Device struct {
	*netstack.Net
	WireGuard *device.Device
	Addr      netip.Addr
}

// Start starts a device with a private key and an address. It sends nothing before something is dialed. The caller must
// close it.
func Start(private Key, addr netip.Addr, gateway Key, port uint16, allowed netip.Prefix) (*Device, error) {
	tun, stack, err := netstack.CreateNetTUN([]netip.Addr{addr}, nil, 1280)
	if err != nil {
		return nil, fmt.Errorf("make network stack: %w", err)
	}
	d := &Device{stack, device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, "")), addr}
	err = d.WireGuard.IpcSet(fmt.Sprintf("private_key=%x\npublic_key=%x\nallowed_ip=%s\nendpoint=127.0.0.1:%d\n",
		private, gateway, allowed, port))
	if err == nil {
		err = d.WireGuard.Up()
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("start device: %w", err)
	}
	return d, nil
}

// Close stops the device, and then closes its stack: WireGuard's own Close does it the other way round, and a packet
// that arrives meanwhile, and that the stack answers, is written to a closed channel.
func (d *Device) Close() {
	_ = d.WireGuard.Down() // it fails only for a device that is closed
	d.WireGuard.Close()
}
