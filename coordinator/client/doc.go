// Package client keeps a participant connected to the coordinator: agents, provisioners, laptops, region proxies, and
// the server's own node. It applies what the server sends to the participant's node, and dials again when the
// connection is lost. It owns which peers the node has and which subscriptions its caller holds; it must not know the
// server's table, nor what a workspace is.
//
// # Lost connections
//
// Tunnels survive a lost coordinator connection. The client keeps its peers, dials again with jittered delays, sends
// the same hello, and announces its node again; the server sends what has changed. A peer that the server does not
// confirm, because it is a new server for instance, counts as lost: the client removes it after the grace period of the
// welcome. A refused credential ends the client.
//
// # What a server can make a participant do
//
// The number of peers and the pace of messages are bounded (bounds.go), so a server that has been taken over cannot
// exhaust a laptop.
package client
