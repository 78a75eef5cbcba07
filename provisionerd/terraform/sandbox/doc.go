// Package sandbox confines one command on Linux. The daemon writes a Policy into an executable file. Running that file starts
// our own program as "sandbox-exec" (Exec), which joins the control groups and, if namespaces are available, becomes
// bubblewrap. Inside, process 1 is "sandbox-init" (Init): it switches the account, enables Landlock and the system call filter,
// starts the policy's program, and lets it finish when the daemon dies.
//
//	daemon ── WriteCommand ──▶ file ── run ──▶ Exec ──▶ bwrap ──▶ Init ──▶ the program
//	   ▲                                        │
//	   └──────── Process, in PidFile ◀──────────┘   by which the daemon, or its successor, finds and kills what runs
//
// The caller chooses what a policy allows (package terraform: grant, namespaces, accounts); this package enforces it. It must
// not know jobs, templates or the daemon. All it knows of Terraform is how a reattached provider's process is named (Watching),
// because process 1 stands in for it.
//
// Commands of this package run before anything else in main: a confined process would hand on what is open.
package sandbox
