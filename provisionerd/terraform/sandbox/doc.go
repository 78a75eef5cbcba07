// Package sandbox confines one command on Linux. The daemon writes a Policy into a file that is a command itself; whoever runs that file
// runs our own program as "sandbox-exec" (Exec), which joins the control groups, becomes bubblewrap where there are namespaces, and
// there is process 1 as "sandbox-init" (Init): it changes the account, turns on Landlock and the filter of system calls, starts the
// policy's program, and leaves it time when the daemon dies.
//
//	daemon ── WriteCommand ──▶ file ── run ──▶ Exec ──▶ bwrap ──▶ Init ──▶ the program
//	   ▲                                        │
//	   └──────── Process, in PidFile ◀──────────┘   by which the daemon, or its successor, finds and kills what runs
//
// What a policy allows is the caller's choice (package terraform: grant, namespaces, accounts); how it holds is this package's. It must not
// know jobs, templates or the daemon. The one thing that it knows of Terraform is how a reattached provider's process is named
// (Watching), because process 1 stands in for it.
//
// Commands of this package run before anything else in main: a confined process would hand on what is open.
package sandbox
