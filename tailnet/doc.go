// Package tailnet is one node of the mesh: its private key, its WireGuard device, the choice between a direct and a relayed
// path, and a user-space network stack on which the process dials and listens.
//
//	node, err := tailnet.New(tailnet.Options{ID: id, Logger: log})
//	defer node.Close()
//	node.SetRelayMap(relays, serverURL)
//	node.Upsert(tailnet.Peer{NodeInfo: info, Inbound: tailnet.InboundNone})
//	conn, err := node.Dial(ctx, netip.AddrPortFrom(info.Addr(), meshport.SSH))
//
// Nodes learn of each other through a coordinator, which is not this package's business: whoever owns a Node publishes
// Node.Info when it changes, and calls Upsert and Remove with what others publish. A peer that was never introduced has no
// key here and cannot even finish a handshake; a peer that was introduced may open connections only to the ports its
// Inbound policy names.
//
// This is the only package (with its subfolders) that imports tailscale.com. It knows no product: not what an agent is, nor
// a workspace, nor who may see whom.
package tailnet
