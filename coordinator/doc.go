// Package coordinator decides nothing and introduces everyone: it keeps the table of who is connected, asks a hook who may
// see whom, and carries what nodes tell each other about themselves. It owns the protocol (this file and protocol.go), the
// server's table (Server) and the client that dials out (Client).
//
// It must not know what a workspace, a user or a database is: who a connection belongs to is settled before Server.Handle,
// and who may see whom is the Authorizer's business. No packet of a tunnel passes through it.
//
// # A connection
//
// The client opens a websocket on Path. Its hello travels in the request: protocol version, node public key, first subscriptions and a
// name in the query, the node's announcement and the credential in headers. So the 101 is followed at once by the welcome, and that by
// the first introductions:
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
// Each side speaks the lower of the two versions, so neither ever has to guess at a message: what it does not know is an
// error. Messages are deltas; nothing like "the whole list again" exists.
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
// What was said on a connection that broke may not have arrived: the next one tells of every partner again, and repeats the
// goodbyes of the last two minutes.
//
// A hello of the same principal with another key (the process was restarted) is gone(old key) and then peer(new key) for
// its partners. A key is bound to one principal from its hello until the relay has let go of it again.
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
// WireGuard sends a lost first handshake again only after five seconds, and a handshake that arrives before the responder knows the key
// would be lost. A node of version 4 keeps such a handshake for a moment (tailnet/engine, strangers), so it needs not be asked first.
//
// # By name
//
// A client that knows its agent by name only says the name in its hello, and asks the API for the rest at the same time. The server
// subscribes it as if it had asked by id (Options.Resolve, then the Authorizer). The name is a hint that is never answered: what is
// wrong with it the API tells, and the client subscribes by id when it knows that.
//
// Endpoints are left out of what two partners are told about each other while both are, or may be, behind NATs: see meet.go.
//
// What a client has been told is kept per partner, and compared with what it should know when its writer has time. So a
// slow connection costs one entry per partner, never a queue, and the table never waits for a connection.
//
// # Giving up a subscription
//
// The server answers unsubscribe with unsubscribed, after the gone that it may lead to: none is sent while the partner wants the
// tunnel too. Until then the client says nothing more about that peer, and a Subscribe waits: the peer that its node has may be
// removed by the gone that is on its way. Where the connection breaks first, the client says unsubscribe again, or waits until
// the peer is introduced on the next one. Servers before version 3 do not confirm, and are not waited for.
//
// # Lost connections
//
// Nothing about a tunnel changes because a coordinator connection was cut. The client keeps its peers, dials again with
// jittered delays, says the same hello, and announces its node again; the server tells it what changed meanwhile. What a
// server (a new one, for instance) does not confirm is treated like a lost peer: removed after the grace that the welcome
// named. A refused credential ends the client.
//
// # A restarted server and sessions that ended meanwhile
//
// With each client an agent is told a pass: which session the client joined with, sealed by the deployment. On every welcome the agent
// names the clients that it has, with their passes (held). The server asks the Authorizer about those that it does not know:
// one whose session has ended is gone at once, the others become lost peers of its table, which may return and which a revocation
// finds. So neither end has to return first, and a client that stays away keeps nothing that its session has lost. What
// cannot be decided stays, and is asked again.
package coordinator
