// Package wireguard ends the tunnels of stock WireGuard devices: phones, routers and other programs that are no nodes
// of the mesh.
//
//	device ── UDP ── WireGuard ── ipstack ── net.Conn ── the owner's handlers
//
// WireGuard is golang.zx2c4.com/wireguard, the reference implementation, and not the one that mesh nodes use: those
// devices have no second protocol that finds paths, no relay and no coordinator. A gateway is their only peer. It ends
// TCP and UDP too, so that it decides about each connection, and packets of a device go nowhere but to the handlers.
//
// # What a peer may do
//
// A peer is a public key and one address. WireGuard drops packets from other addresses than the peer's own. The gateway
// drops what is not TCP, UDP or an echo request, fragments, and packets to addresses that are link-local or multicast.
// It asks its owner about all the rest: each connection, each flow, each address that is pinged. What the owner refuses
// gets an answer: a reset, or "port unreachable".
//
// # After a restart
//
// A device that has a session does not notice that its gateway has lost it: it begins a handshake when nothing has
// answered for 15 seconds, and some only minutes later. So the owner stores where devices are (Options.Seen). A gateway
// that hears a packet of a session which it does not know tells its owner (Options.Stranger), who may begin the
// handshake from this side (Wake).
package wireguard
