// Package jobs is the build queue. It orders jobs, leases each to a provisioner daemon that may run it, applies the
// daemon's reports exactly once, and explains why a job waits. A Handler defines what a job means (an import, a build);
// this package must not know templates or workspaces. It passes on two things of theirs without interpreting them:
// Terraform's state in an offer or a result, which may arrive in pieces and is kept when a result cannot be stored, and
// the ids and names of a job's target, which lists show.
//
//	                      accept
//	pending ──▶ running ─────────▶ (events) ──▶ succeeded │ failed
//	   ▲  │  lease │                  │
//	   │  │        │ not accepted     │ cancel
//	   │  │        ▼ in 5 s           ▼
//	   └──┼────────┘               canceling ──▶ canceled │ failed │ succeeded
//	      └──▶ canceled
//
// The server confirms an Accept with an Ack of number 0, and only then does the daemon begin: if an Accept is lost, no
// daemon runs the job. Each lease of a job increments the job's epoch. The lease outlives the daemon's
// stream by a grace period, and also survives a restart of the server. After the grace period, or when the daemon comes
// back without the job, the job fails with the last state it reached. Events carry the epoch and a number that
// increases by one. The server acknowledges an event that it has already applied without applying it again, and refuses
// an event of an old epoch. So a job's state has one writer. Events that arrive while the server stores earlier ones
// wait in the session's inbox and are stored together, in one transaction for each lease; one acknowledgement covers
// them. If one of them cannot be stored, each is stored alone.
//
// If a job ends without its provisioner's result, because the result was lost for good or its state cannot be stored,
// the StateHandler of its kind completes the result from the log's batches, which report the changes that the job had
// begun.
//
// A daemon that hears nothing from the server for the grace period stops its jobs; the server waits a little longer
// (the fence) before it gives them up.
//
// Several servers may use one database. Each dispatches to the daemons connected to it (leases skip each other's rows),
// a cancel reaches the server with the daemon by notification, and a lease is given up only when no server has had its
// daemon for the grace period. Each server writes a heartbeat about every second and corrects what the database says of
// its daemons; the daemons of a server with an old heartbeat are offline. So a flag that an outage kept from being
// cleared cannot hold a lease forever. A built-in daemon lives in its server's process, so its leases end soon after
// that server's last heartbeat, and a server that alone has lost the database revokes them before (guard.go). A running
// job says that its daemon is offline, and a cancel of such a job ends it at once (absence.go).
//
// Lock order: Service.mu is held for map operations only; no query, send or handler runs under it.
package jobs
