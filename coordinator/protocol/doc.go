// Package protocol defines what participants and servers of the mesh say to each other: the messages, their limits, and
// the decoders of everything that comes from outside, each with a fuzz target. It owns what both ends must agree on,
// and nothing that either end remembers: it must not know the server or the client.
//
// # A connection
//
// The client opens a websocket on Path. The request contains its hello: protocol version, node public key, first
// subscriptions and a name in the query, the node's announcement and the credential in headers. The server can
// therefore follow the 101 immediately with the welcome and the first introductions:
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
// Each side speaks the lower of the two versions, so neither has to guess: an unknown message is an error. Messages are
// deltas; the whole list is never sent again.
//
// A client that knows only its agent's name sends the name in its hello, and asks the API for the rest at the same
// time. The name is a hint and has no answer: the API reports what is wrong with it, and the client subscribes by id
// once it knows the id.
//
// # Giving up a subscription
//
// The server answers unsubscribe with unsubscribed. If the partner does not want the tunnel either, it sends gone
// first. Until the answer the client sends nothing more about that peer, and a new subscription waits, because a gone
// on its way may remove the peer from the node. If the connection breaks first, the client repeats unsubscribe, or
// waits until the next connection introduces the peer. Servers older than version 3 do not confirm, and the client does
// not wait for them.
//
// # A link between servers
//
// Each pair of servers keeps one link, a websocket on LinkPath:
//
//	hello{version}                ──▶ ◀──  both at once; each side speaks the lower version
//	present{participant}, …, want{from, to}, …, synced
//	present{participant}, gone{id}         whenever one of the sender's participants changes
//	want{from, to}, unwant{from, to}       a participant of the sender subscribes to one of the receiver's, or gives it up
//	ready{from, to, key}                   a destination older than version 4 knows the initiator's key
//	meet{from, to, delay}                  send the endpoints of from to to after the delay
//	probe{id, key}, probed{answers}        does the process of an agent still answer
//
// A participant belongs to the server that it connected to last, as its stamp shows: the time of that connection, or
// one more than the highest stamp that the server knew. Package coordinator documents what servers do with these
// messages.
package protocol
