// Package peering keeps the links over which the servers of a deployment tell each other about their participants. It
// owns the greeting, the order of messages, the probes and the figures of a link. What the messages mean is its
// Table's: it must not know the table of participants, nor the connections of participants.
//
// # What is sent
//
// A link has no queue of messages. It notes which participants and subscriptions have changed, each at most once, and
// asks the Table for messages when the connection has room. So a change costs one message, and a slow link one note for
// each participant. Notes are sent in this order, so that the other server knows a participant before it learns what
// the participant wants:
//
//	participants that are gone or have changed; probes and their answers
//	subscriptions that have begun or ended
//	ready, punch
//	synced, once, when the first notes were sent
//
// Package protocol lists the messages, and package coordinator implements the Table.
package peering
