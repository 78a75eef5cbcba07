// Package provisionerd is the provisioner daemon: it dials out to the server over the mesh, waits for build jobs on one stream,
// runs them with an executor, and delivers their results. It owns this side of a job's lease, the journal on disk and the
// session; it knows neither Terraform (package job's Executor does) nor the server's database.
//
// # A lease, as the daemon sees it
//
//	          offer                     ack{0}                    Run returns
//	(nothing) ─────▶ accepted ────────────────▶ running ────────────────────────▶ finished ──▶ (forgotten)
//	                    │                          │                                 │  every event acknowledged
//	                    │ revoked                  │ revoked: stopped, set aside     │ revoked: set aside
//	                    ▼                          ▼                                 ▼
//	                (forgotten)                (forgotten)                       (forgotten)
//
// A job starts only when the server has confirmed the lease (an Ack with sequence 0): an Accept that got lost on its way
// must not leave two daemons with the same job. From there on no connection is needed. Every log batch, state checkpoint (in
// pieces when it is large), resource list and the result is an event, appended to the job's journal before it is sent, and sent again on every new
// stream until it is acknowledged.
//
// A daemon that has not heard of the server for as long as a lease outlives its stream (Welcome.grace) interrupts its jobs:
// from then on the server may have given them to another daemon. Their results stay in the journal.
//
// A daemon that was killed finds its journals when it starts again. A finished job is delivered; an unfinished one is
// recovered by the executor and ends with a failed result that carries the last known state, and names what that may lack: the
// journal also holds each change that the job had begun.
//
// A daemon may also have an heir: another process with Options.Heir, that takes the folder (ClaimFolder) when the daemon was
// killed, does the same, and ends when everything is delivered. A new daemon sends it away.
//
// # Locks
//
// Daemon.mu guards the table of leases and what the session is to send. lease.writing orders appends to one journal and is
// held over disk writes; lease.mu guards the rest of a lease. Order: lease.writing, Daemon.mu, lease.mu; none is held over
// network I/O or logging.
package provisionerd
