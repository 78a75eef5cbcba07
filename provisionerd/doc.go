// Package provisionerd is the provisioner daemon. It dials out to the server over the mesh, waits for build jobs on one
// stream, runs them with an executor, and delivers what they produce. It owns this side of a job's lease, the journal
// on disk, and the session; it knows neither Terraform (package job's Executor does) nor the server's database.
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
// A job starts only after the server has confirmed the lease (an Ack with sequence 0), so that a lost Accept cannot
// leave two daemons with the same job. From then on the job needs no connection. Every log batch, state checkpoint (in
// pieces if it is large), resource list and the result is an event. The daemon appends it to the job's journal before
// sending it, and sends it again on every new stream until it is acknowledged.
//
// A daemon that has received nothing from the server for as long as a lease outlives its stream (Welcome.grace)
// interrupts its jobs, because the server may give them to another daemon from then on. What they produced stays in the
// journal.
//
// A killed daemon finds its journals when it starts again. It delivers finished jobs. The executor recovers unfinished
// ones; they end with a failed result that carries the last known state and names what that state may lack, because the
// journal also holds each change that the job had begun.
//
// A daemon may also have a successor: another process with Options.Successor that locks the folder (LockFolder) when
// the daemon was killed, does the same, and ends when everything is delivered. A new daemon makes it leave.
//
// # Locks
//
// Daemon.mu guards the table of leases and the session's queue. lease.writing orders appends to one journal and is held
// over disk writes; lease.mu guards the rest of a lease. Order: lease.writing, Daemon.mu, lease.mu; none is held over
// network I/O or logging.
package provisionerd
