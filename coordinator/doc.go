// Package coordinator introduces participants of the mesh to each other. It keeps the table of connected participants,
// asks a hook who may see whom, and passes on what nodes announce about themselves. It decides nothing on its own.
//
// It must not know what a workspace, a user or a database is: callers of Server.Handle have identified the connection's
// owner, and the Authorizer decides who may see whom. No tunnel packets pass through it. Package protocol has the
// messages, and package client the other end of a connection, which the server does not import. Package peering has the
// links between servers.
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
// Messages on a broken connection may not have arrived. The next connection therefore introduces every partner again,
// and repeats the goodbyes of the last two minutes.
//
// A hello of the same principal with another key (the process was restarted) is gone(old key) and then peer(new key)
// for its partners. A key is bound to one principal from its hello until the relay has released it.
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
//	offered  a destination older than version 4 was sent the initiator with ack=true; the initiator knows nothing yet
//	open     both are introduced: at once, or when the destination has answered ready (or ReadyTimeout has passed)
//
// WireGuard sends a lost first handshake again only after five seconds, and a handshake that arrives before the
// responder knows the key would be lost. A node of version 4 keeps such a handshake for a moment (tailnet/engine,
// strangers), so it need not be asked first.
//
// # By name
//
// A client that knows only its agent's name sends the name in its hello, and asks the API for the rest at the same
// time. The server subscribes the client as if it had asked by id (Options.Resolve, then the Authorizer). The name is a
// hint and has no answer: the API reports what is wrong with it, and the client subscribes by id once it knows the id.
//
// An introduction omits the endpoints while both partners are, or may be, behind NATs: see holepunch.go.
//
// For each partner the server keeps what the client has been sent, and compares it with the table whenever the writer
// has time. A slow connection therefore costs one entry per partner, never a queue, and the table never waits for a
// connection.
//
// # A restarted server and sessions that ended meanwhile
//
// With each client an agent receives a pass, sealed by the deployment, that names the session the client joined with.
// On every welcome the agent lists its clients and their passes (held). The server asks the Authorizer about those it
// does not know. A client whose session has ended is gone at once; the others become lost peers of the table, which may
// return and which a revocation finds. So neither end has to return first, and a client that stays away keeps nothing
// that its session has lost. What cannot be decided stays, and the server asks again.
//
// # Several servers
//
// The servers of a deployment know each other's participants. Each pair keeps one link (Server.Link); package protocol
// lists its messages.
//
// A participant belongs to the server that it connected to last, as its stamp shows: the time of that connection, or
// one more than the highest stamp that the server knew. A server that learns of a higher one ends its own connection.
// Subscriptions are kept and authorized by the server of the participant that subscribed; its partner's server follows.
// Both servers then have the tunnel in their tables and each tells its own participant, so what the participants see
// does not depend on where they are connected. A tunnel without a participant of this server is not in its table.
//
// A link has no queue of messages: it notes which participants and pairs have changed, and its writer reads the table
// (package peering). A change costs one message to each server, a subscription one to the partner's.
//
// When a link ends, the other server's participants are lost, never gone: they may return on the next link, or to any
// server within LostTimeout. The next link begins with everything that the sender has. Subscriptions that a server told
// on an earlier link and does not repeat have ended. A participant that moves between servers takes its subscriptions
// along by repeating them, as clients do on every welcome; until then its partners' servers keep the old ones. An
// unsubscribe of something that the server does not know goes to all. When a server is gone, the others ask the
// Authorizer about the subscriptions for which it vouched.
//
// Agents and provisioners see the servers' nodes that are connected to the same server, and another one if it
// subscribes to them.
package coordinator
