// Package engine is the machinery below a mesh node: WireGuard, the choice of a path to each peer, relays, and a TCP/IP stack in
// user space. It is the only package that knows the libraries which do this: wireguard-go, tailscale.com's magicsock and gVisor.
//
//	application            net.Conn
//	    │
//	stack                  gVisor: TCP and UDP over IPv6
//	    │ nic              a gVisor link and a WireGuard TUN device in one
//	WireGuard              wireguard-go's device
//	    │ bind             chooses, for each batch of packets
//	    ├── magicsock      UDP on a direct path, and the search for one (disco)
//	    └── relayLink      frames on a connection to a relay (DERP)
//
// # Paths
//
// magicsock knows whether a direct path to a peer is proven. The bind asks it with each batch. While there is none, or the one
// there was has not answered for some seconds, the bind hands WireGuard's packets to the link of the peer's relay, which keeps
// them in a queue per peer until the connection takes them. Disco messages travel through the same link: for magicsock each relay
// is a server on a loopback address of this process (see bridge), so that a node has one connection to a relay, made by this
// package, through whatever proxy is in the way.
//
// # What it assumes of its libraries
//
// Each assumption that no library promises has a test in contract_test.go that names it. Run these first after an update:
//
//	go test ./tailnet/engine -run Contract
//
// # Blocking and locks
//
// The callbacks in Options are called on the libraries' goroutines, some with their locks held. They must return at once and must
// not call the engine.
package engine
