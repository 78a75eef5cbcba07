// Package tailnet implements one node of the mesh: its private key, its WireGuard device, the choice between direct and
// relayed paths, and a user-space network stack on which the process dials and listens.
//
// The package knows no product and no coordinator. Nodes learn of each other through their owners: the owner of a Node
// publishes Node.Info when it changes, and calls Upsert and Remove with what other nodes publish. A peer that was not
// introduced has no key here and cannot complete a handshake. An introduced peer may open connections only to the ports
// that its Inbound policy names.
//
// # Paths
//
// A node has a home relay as soon as it knows one, and packets to a peer take a relay immediately. Meanwhile both sides
// probe each other's endpoints, and they switch once a direct path has answered. If a direct path falls silent, the
// relay takes over after about six seconds. Connections survive that, as well as Rebind and a change of network.
//
// # Memory
//
// An idle node has about 4 MB resident. Its receive buffers count as 33 MB of heap that is never touched, so the
// garbage collector sees a heap twice its actual size. A process that must stay small should lower its target
// (debug.SetGCPercent(20) halves the peak under load) or set a memory limit of at least 64 MB. Under bulk load each
// byte in flight costs up to 50: see Options.SendBuffer.
//
// Only this package and its subdirectories import tailscale.com. This package knows nothing about the product: neither
// what an agent or a workspace is, nor who may see whom.
package tailnet
