// Package coordinator introduces participants to each other: it keeps the table of connected participants, asks an authorizer
// who may see whom, and carries the nodes' announcements. It owns the protocol (this file and protocol.go), the server's table
// (Server) and the client that dials out (Client).
//
// It must not know what a workspace, a user or a database is: callers of Server.Handle have identified the connection's owner,
// and the Authorizer decides who may see whom. No tunnel packets pass through it.
//
// # A connection
//
// The client opens a websocket on Path. The request contains its hello: protocol version, node public key, first subscriptions
// and a name in the query, the node's announcement and the credential in headers. The server can therefore follow the 101
// immediately with the welcome and the first introductions:
//
//	client                                     server
//	GET Path?v=4&key=nodekey:…&subscribe=…&name=… ──▶ authenticate, bind key ↔ principal, admit the key in the relay
//	                              ◀── 101, welcome{version, id, relay map, servers, grace}
//	node{info}                             ──▶ validated: own id, own key, known region, bounded endpoints
//	                              ◀── peer{info, kind, ack}, pass{id, key, pass}, lost{id}, gone{id}, refused{id, code, message}, unsubscribed{id}
//	ready{id}, subscribe{id}, unsubscribe{id}, held{peers} ──▶
//	                              ◀── relay{map}, notice{kind, message}, error{code, message} and close
//	bye                                    ──▶ gone at once
//
// Both sides speak the lower of the two versions, so an unknown message is always an error. Messages are deltas; there is no
// message with the whole list.
//
// # A peer, as the server sees it
//
//	         hello                  connection ends without bye
//	absent ────────▶ online ──────────────────────────────────────▶ lost
//	  ▲                │  ▲                                          │ │
//	  │  bye, kick,    │  └──────────── hello, same key ─────────────┘ │
//	  │  revoke        │                (partners notice nothing)      │
//	  ├────────────────┘                                               │
//	  └────────────── LostTimeout, kick, revoke ───────────────────────┘
//
// Messages on a broken connection may not have arrived. The server therefore announces every partner again on the next
// connection, and repeats the goodbyes of the last two minutes.
//
// If the same principal says hello with another key (the process was restarted), its partners receive gone(old key) and then
// peer(new key). A key is bound to one principal from its hello until the relay has released it.
//
// # A tunnel, from the initiator (who subscribed) to the destination
//
//	   ┌──────────────────────┐
//	   │                      ▼
//	pending ──▶ offered ──▶ open
//	   ▲           │          │
//	   └───────────┴──────────┘ either node is gone or has a new key
//
//	pending  the destination is not connected, or one of them has no home relay yet
//	offered  a destination before version 4 was told about the initiator with ack=true; the initiator knows nothing yet
//	open     both are told about each other: at once, or when the destination answered ready (or ReadyTimeout passed)
//
// WireGuard retries a lost first handshake only after five seconds, and a handshake that arrives before the responder knows the
// key would be lost. Nodes since version 4 keep such a handshake briefly (tailnet/engine, strangers), so the coordinator does
// not wait for them.
//
// # By name
//
// A client that knows only its agent's name puts the name into its hello and requests the rest from the API in parallel. The
// server subscribes it as if it had asked by id (Options.Resolve, then the Authorizer). The name is a hint without a response:
// the API reports errors in it, and the client subscribes by id once it has the id.
//
// While two partners are, or may be, both behind NATs, introductions omit their endpoints: see meet.go.
//
// The server records per partner what a client has been sent, and compares it with the current state when the client's writer
// is free. A slow connection therefore costs one entry per partner, never a queue, and the table never waits for a connection.
//
// # Giving up a subscription
//
// The server answers unsubscribe with unsubscribed, after the gone that may result from it; it sends no gone while the partner
// still wants the tunnel. Until then the client sends nothing more about that peer, and a Subscribe waits, because the gone on
// its way may remove the node's peer. If the connection breaks first, the client unsubscribes again, or waits until the peer is
// introduced on the next one. Servers before version 3 do not confirm, and the client does not wait for them.
//
// # Lost connections
//
// Tunnels survive the loss of a coordinator connection. The client keeps its peers, redials with jittered backoff, says the
// same hello, and announces its node again; the server sends what changed in the meantime. Peers that a server (a new one, for
// example) does not confirm are treated as lost: the client removes them after the grace period in the welcome. A refused
// credential ends the client.
//
// # A restarted server and sessions that ended meanwhile
//
// With each client an agent receives a pass: the session that the client joined with, sealed by the deployment. On every
// welcome the agent lists its clients with their passes (held). The server asks the Authorizer about those that it does not
// know. A client whose session has ended is gone immediately; the others become lost peers of the table, which may return and
// which a revocation finds. Neither end has to return first, and a client that stays away keeps no rights that its session has
// lost. Undecided clients stay, and the server asks again.
package coordinator
