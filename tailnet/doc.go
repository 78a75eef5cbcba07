// Package tailnet is one node of the mesh: its private key, its WireGuard device, the choice between a direct and a relayed
// path, and a user-space network stack on which the process dials and listens.
//
//	node, err := tailnet.New(tailnet.Options{ID: id, Logger: log})
//	defer node.Close()
//	node.SetRelayMap(relays, serverURL)
//	node.Upsert(tailnet.Peer{NodeInfo: info, Inbound: tailnet.InboundNone})
//	conn, err := node.Dial(ctx, netip.AddrPortFrom(info.Addr(), meshport.Session))
//
// Nodes learn of each other through a coordinator, which is not this package's business: whoever owns a Node publishes
// Node.Info when it changes, and calls Upsert and Remove with what others publish. A peer that was never introduced has no
// key here and cannot even finish a handshake; a peer that was introduced may open connections only to the ports its
// Inbound policy names.
//
// # Paths
//
// A node has a home relay as soon as it knows one, and packets to a peer go through relays at once. Meanwhile both sides try
// each other's endpoints, and switch when a direct path has answered. When a direct path falls silent, the relay takes over
// after about six seconds; connections survive that, and Rebind, and a change of network.
//
// # Memory
//
// An idle node has about 4 MB resident. Its receive buffers count as 33 MB of heap that is never touched, though, so that the
// garbage collector sees a heap twice as large as it is: a process that must stay small should lower its target
// (debug.SetGCPercent(20) halves the peak under load) or set a memory limit of no less than 64 MB. Under bulk load each byte
// in flight costs up to 50: see Options.SendBuffer.
//
// This is the only package (with its subfolders) that imports tailscale.com. It knows no product: not what an agent is, nor
// a workspace, nor who may see whom.
package tailnet
