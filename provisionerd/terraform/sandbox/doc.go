// Package sandbox confines one command on Linux. The daemon writes a Policy into a file, and makes a Command beside it,
// which is a link to our own program. Running it is Exec, which joins the control groups and, with namespaces, becomes
// bubblewrap. Inside, our program is process 1 as "sandbox-init" (Init): it changes the account, turns on Landlock and
// the system call filter, starts the policy's program, and gives it time to end when the daemon dies.
//
//	daemon ── Store ──▶ file, Command ── run ──▶ Exec ──▶ bwrap ──▶ Init ──▶ the program
//	   ▲                                          │
//	   └──────── Process, in PidFile ◀────────────┘   by which the daemon, or its successor, finds and kills what runs
//
// # What crosses
//
// Exec, bubblewrap and Init begin with the daemon's rights, as root or the server's account, and a variable such as
// LD_PRELOAD would decide what they run. So everything that a job or a workspace chooses crosses in the policy's file,
// which the daemon alone can write and read: the program (Exec), its arguments (Args), its environment (Env) and its
// working folder (Dir). They are used for the program itself, by a process that has given up its account and is
// confined. Apart from the file, each start gets:
//
//   - Environment: of Exec, what the daemon's callers set (terraform-exec: constants, and TF_APPEND_USER_AGENT and
//     CHECKPOINT_DISABLE of the daemon); of bubblewrap and Init, a fixed PATH. None of it reaches the program.
//   - Arguments: of Exec, its own name and Terraform's arguments, which are the daemon's; of bubblewrap, what the
//     policy's author made of the view, whose paths are the daemon's and the operator's; of Init, two numbers of files
//     and Terraform's arguments.
//   - Working folder: /.
//   - Files: standard input is /dev/null; standard output and error are pipes of the daemon or a workspace's log. Exec
//     marks all others to be closed (leaveCaller), and hands on two: the policy's file, and the note of the process or
//     a pipe to it.
//   - Umask: 022. Resource limits: the daemon's, without core files, and those of the policy.
//   - Signals: dispositions and mask are the daemon's; a job cannot change them.
//
// KillAccount starts our program with no environment, in /, as the account itself. The provider worker gets its facts
// over standard input and applies them after it has changed its account.
//
// The caller decides what a policy allows (package terraform: grant, namespaces, accounts); this package enforces it.
// It must not know jobs, templates or the daemon. All that it knows of Terraform is how a reattached provider's process
// is named (Watching), because process 1 stands in for it.
//
// Commands of this package run before anything else in main, because a confined process would inherit open files.
package sandbox
