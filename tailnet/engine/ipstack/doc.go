// Package ipstack ends TCP and UDP in user space: gVisor's network stack, on a link that is read and written like a TUN
// device.
//
//	net.Conn ── Stack ── Link ── packets
//
// A mesh node has one behind its WireGuard (package engine), with one address. The gateway for stock WireGuard devices
// has another, which answers for all the addresses that its devices may ask for (package wireguard).
//
// The link splits and joins segments, so that packets pass it in batches. It does not know who encrypts them.
package ipstack
