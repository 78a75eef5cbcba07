// Package notifications owns what users are told: the texts of events, the outbox of messages, their delivery by mail,
// webhook and inbox, users' inboxes and preferences. It knows events only by their templates and labels, and must not
// know what causes them.
//
// # From an event to a message
//
// A service records an event in the transaction of what causes it (Recorder.Record). One statement resolves the
// recipients, leaves out those who disabled the event, and adds a message per recipient and method to the outbox: the
// inbox, and the event's external method (smtp or webhook). If the transaction rolls back, no message is sent.
//
//	service          Recorder          notification_messages           Service (each server)
//	   │── Record(q) ──▶│── INSERT ───────────▶ pending                        │
//	   │   commit       │                       │ ── NOTIFY notifications ────▶│ wakes
//	   │                │                       │◀──── lease, attempt ─────────│
//	   │                │                       │                              │── SMTP, POST, or inbox row
//	   │                │       sent ◀──────────┴───── finish, if the lease ───│
//	   │                │       failed                  is still held          │
//	   │                │       pending, later                                 │
//
// Each server runs one loop per method, so that a mail server that hangs delays neither webhooks nor inboxes. A lease
// (FOR UPDATE SKIP LOCKED) moves the message's due time to the end of the lease, which is longer than an attempt may
// take. If the server dies, another one takes the message over when the lease ends. A message in the inbox is therefore
// delivered exactly once, because its row is inserted in the transaction that finishes the message. Mail and webhooks
// are delivered at least once: a receiver can recognize a repetition by the message's id (Message-ID, msg_id), which is
// the same for all attempts.
//
// A failed attempt is repeated after a growing pause, MaxAttempts times in all. While an administrator pauses
// notifications, events are recorded and nothing is delivered.
//
// # Texts
//
// A Template is a title and a body with the names of labels in double braces, and links. Values are untrusted: they are
// escaped for each format (plain text, Markdown, HTML), and cannot add markup, headers or links (render.go). One-time
// passcodes are not recorded; they go to the mail server directly (Passcodes), because the outbox must not hold
// secrets.
package notifications
