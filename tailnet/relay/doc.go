// Package relay is the server side of the mesh's fallback path: a DERP relay, which carries encrypted WireGuard packets
// between nodes without a direct path, and a STUN responder, which tells nodes their public addresses. The example of
// package tailnet serves a relay over HTTP.
//
// A relay carries packets only for admitted keys. A client proves possession of its node key in DERP's own handshake,
// so admission is authentication. Call Server.Admit before a node learns of the relay. Server.Revoke ends a key's
// connection.
//
// Relays that share a key forward packets to each other (Server.Follow), so two nodes reach each other whichever of the
// relays each of them is connected to.
//
// This package does not know who owns a key, nor why it is admitted.
package relay
