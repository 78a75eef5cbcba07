// Package tunnel ends the connections of the programs of this machine to addresses of the mesh.
//
//	programs ── kernel ── TUN device ── ipstack ── net.Conn ── the owner's handlers
//
// The TUN device is golang.zx2c4.com/wireguard/tun. A process with the rights to create it hands it over as an open
// file, so that the process that reads packets needs no rights. The tunnel drops what is not TCP, UDP or an echo
// request, fragments, packets from other addresses than the machine's own in the tunnel, and packets to addresses
// outside of the mesh. It asks its owner about all the rest, and refuses with a reset or "port unreachable".
//
// Packets never leave the machine, so they are as long as IPv6 allows: one system call carries 64 KiB.
package tunnel
