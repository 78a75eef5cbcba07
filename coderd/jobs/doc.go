// Package jobs is the build queue. It orders jobs, leases each to a provisioner daemon that may run it, applies the daemon's
// reports exactly once, and explains why a job waits. A Handler defines what a job means (an import, a build); this package
// must not know templates or workspaces. It passes on two things of theirs without interpreting them: Terraform's state in an
// offer or a result, which may come in pieces and is kept when a result cannot be stored, and the ids and names of a job's
// target, which lists show.
//
//	                      accept
//	pending ──▶ running ─────────▶ (events) ──▶ succeeded │ failed
//	   ▲  │  claim │                  │
//	   │  │        │ not accepted     │ cancel
//	   │  │        ▼ in 5 s           ▼
//	   └──┼────────┘               canceling ──▶ canceled │ failed │ succeeded
//	      └──▶ canceled
//
// The server confirms an Accept with an Ack of number 0, and only then does the daemon begin: after a lost Accept, no daemon
// runs the job. A claim grows the job's epoch and is the daemon's lease. The lease outlives the daemon's stream by a grace
// period, and the server's restart too; afterwards, or when the daemon comes back without the job, the job fails with the last
// state it reached. Events carry the epoch and a number that grows by one: what was applied is acknowledged again and not
// applied again, what belongs to an old epoch is refused. So a job's state has one writer.
//
// A job that ends without a result of its provisioner, because that was lost for good or its state cannot be stored, is settled
// by its kind's StateHandler from what the log's batches told of the changes that the job had begun.
//
// A daemon that hears nothing of the server for the grace period stops its jobs; the server waits a little longer (the fence)
// before it gives them up.
//
// Several servers may use one database. Each dispatches to the daemons connected to it (claims skip each other's rows), a
// cancel reaches the server with the daemon by notification, and a lease is given up only when no server has had its daemon for
// the grace period. Each server writes a beat every few seconds and corrects what the database says of its daemons; the daemons of
// a server whose beat is old are offline. So no flag that an outage kept from being cleared holds a lease for ever.
//
// Lock order: Service.mu is held for map operations only; no query, send or handler runs under it.
package jobs
