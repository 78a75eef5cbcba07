// Package engine implements a mesh node's data path: WireGuard, path selection per peer, relays, and a TCP/IP stack in
// user space. Only this package knows the underlying libraries: wireguard-go, tailscale.com's magicsock and gVisor.
//
//	application            net.Conn
//	    │
//	ipstack                gVisor: TCP and UDP over IPv6
//	    │ link             a gVisor link and a WireGuard TUN device in one
//	WireGuard              wireguard-go's device
//	    │ bind             chooses, for each batch of packets
//	    ├── magicsock      UDP on a direct path, and the search for one (disco)
//	    └── relayLink      frames on a connection to a relay (DERP)
//
// # Paths
//
// magicsock knows whether a direct path to a peer is proven, and the bind asks it with each batch. While there is none,
// or it has not answered for some seconds, the bind hands WireGuard's packets to the link of the peer's relay, which
// queues them per peer until the connection accepts them. Disco messages use the same link: magicsock sees each relay
// as a server on a loopback address of this process (see shim). A node therefore has one connection to a relay, opened
// by this package through any proxy in between.
//
// # Assumptions about the libraries
//
// Each assumption that the libraries do not guarantee has a test in contract_internal_test.go that names it. Run these
// first after an update:
//
//	go test ./tailnet/engine -run Contract
//
// # Blocking and locks
//
// The libraries' goroutines call the callbacks in Options, some with locks held. Callbacks must return immediately and
// must not call the engine.
package engine
