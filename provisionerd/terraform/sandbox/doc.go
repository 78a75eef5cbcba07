// Package sandbox confines one command on Linux. The daemon writes a Policy into an executable file. Running that file runs our own program
// as "sandbox-exec" (Exec), which joins the control groups and, with namespaces, becomes bubblewrap. Inside, our program is process 1 as
// "sandbox-init" (Init): it changes the account, turns on Landlock and the system call filter, starts the policy's program, and
// gives it time to end when the daemon dies.
//
//	daemon ── WriteCommand ──▶ file ── run ──▶ Exec ──▶ bwrap ──▶ Init ──▶ the program
//	   ▲                                        │
//	   └──────── Process, in PidFile ◀──────────┘   by which the daemon, or its successor, finds and kills what runs
//
// The caller decides what a policy allows (package terraform: grant, namespaces, accounts); this package enforces it. It must not
// know jobs, templates or the daemon. All that it knows of Terraform is how a reattached provider's process is named (Watching), because
// process 1 stands in for it.
//
// Commands of this package run before anything else in main, because a confined process would inherit open files.
package sandbox
