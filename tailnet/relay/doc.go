// Package relay is the server side of the mesh's fallback path: a DERP relay, which carries encrypted WireGuard packets between
// nodes that have no direct path, and a STUN responder, which tells nodes their public addresses.
//
// It carries for admitted keys only. A client proves possession of its node key in DERP's own handshake, so admission is
// authentication. Revoking a key ends its connection:
//
//	s, err := relay.New(relay.Options{Logger: log})
//	mux.Handle("/derp", s.Handler())
//	mux.Handle("/derp/", s.Handler())
//	s.Admit(key)  // before the node is told of the relay
//	s.Revoke(key)
//
// It does not know who owns a key, nor why it is admitted.
package relay
