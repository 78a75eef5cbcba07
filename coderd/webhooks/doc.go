// Package webhooks owns the events that other programs are told: what happens to workspaces, builds, agents, users and
// templates. It delivers them to webhooks, and serves them as a stream. It knows events as rows, and must not know what
// causes them.
//
// # From a change to a delivery
//
// Triggers write an event in the transaction of the change (migration 99): from the row of the audit log, where a
// change has one, and from the rows of builds and agents otherwise. If the transaction rolls back, there is no event.
//
//	change            lifecycle_events            Service (each server)        webhook_deliveries
//	  │── trigger ───────▶ without number              │
//	  │   commit ── NOTIFY lifecycle ─────────────────▶│ one at a time:
//	  │                  numbered ◀────────────────────│── number, fan out ─────────▶ pending
//	  │                     │                          │
//	  │                     │◀──── stream reads ───────│◀──── lease, attempt ──────────│
//	  │                     │      after a number      │── POST ──▶ receiver           │
//	  │                     │                          │── delivered, failed, later ──▶│
//
// The numbers are given after the events are visible, under a lock, so that a reader that has seen a number has seen
// all numbers below it. A sequence alone would not do: a transaction can take a number and commit after a later one.
//
// A delivery is leased (FOR UPDATE SKIP LOCKED) for a time that is longer than an attempt may take; if the server
// dies, another one takes it over. So each event is delivered at least once, and receivers recognize repetitions by the
// id of the message. Of the deliveries of one webhook and one subject, only the first that is pending can be leased,
// so they arrive in order; those of other subjects do not wait.
//
// Each webhook has a goroutine of its own while it has something due: a receiver that hangs does not delay the others.
// A failed attempt is repeated after the pauses of schedule. If the last one fails, or the receiver answers 410, and
// nothing was accepted meanwhile, the webhook is disabled and owners are told in their inboxes.
package webhooks
