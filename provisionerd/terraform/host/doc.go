// Package host is the machine that jobs and workspaces run on: it confines and runs their programs, and removes what
// they leave.
//
// It owns the run folder and its slots (Slot), the accounts of jobs and workspaces, control groups and other limits,
// what a sandbox sees of the host's files (package sandbox enforces it), the provider worker with its gate, and
// workspaces that are processes of this host. A job's owner takes a slot and gives it facts (Facts) and grants (Grant);
// the slot runs Terraform's commands.
//
// An executor passes in what it needs (Options, and a function that reports whether it has been closed). This package
// knows nothing of the executor, the template cache or the commands of a job: it must not know the mesh or coderd.
//
// # The provider
//
// The provider reads its facts from the environment of its process, so every job has its own worker. Workers are
// started ahead and wait for the job's facts on standard input. Terraform presents no certificate to a provider that it
// is attached to, so the daemon asks the kernel who connects: it admits processes of the job's account that descend
// from the job's Terraform, and passes their connections to the worker, which has no listener. On systems other than
// Linux, where there is no sandbox, the socket's mode decides.
//
// # Isolation
//
// Terraform and everything that a template starts (other providers, local-exec) get an allow-listed environment, never
// the daemon's own. With Options.Isolation "auto", on Linux, a job owns nothing that the daemon trusts:
//
//   - What runs before a job is confined sees nothing of the job: its variables, arguments and folder travel in the
//     policy (package sandbox).
//   - The slot's folder is the daemon's. The working folder is a new one for each plan, filled through os.Root before
//     it is given to the job's account, and never written again. The daemon kills what a job leaves running before it
//     touches anything.
//   - As root, each job has an account of its own: a number from a range that executors on one host claim by locks
//     (accounts). It is not used again before all that it owns where accounts share folders has been removed
//     (sandbox.Leavings).
//   - Bubblewrap makes namespaces for processes, mounts, System V IPC and names, with a root folder made of the
//     system's folders, the slot's three, and what a grant names. Temporary folders and /run are private, so unix
//     sockets of others are out of reach. Under an account other than root, it uses a user namespace.
//   - Process 1 inside (sandbox.Init) is our own program: it changes account, turns on Landlock with the scopes for
//     signals and abstract sockets, and a filter of system calls, starts Terraform, and passes signals on. When the
//     daemon dies it interrupts Terraform and gives it time to end (Options.LastWords). Nothing survives process 1.
//   - Control groups bound memory, processes and processors of a job (cgroup), else resource limits bound the memory of
//     each process and the number of all; the daemon watches a job's folders, and limits its time.
//
// Without bubblewrap, as root, accounts, Landlock and the filter remain, the daemon kills processes and removes files
// by their account, and a job's /proc hides other accounts' processes if the daemon may mount. If neither is available
// SetUp fails, or the executor asks its Options.MayRunUnconfined before each job. With "none", templates can do
// whatever the daemon's account can.
//
// The network is the host's. A template whose provider is named docker gets Docker's socket (WithDocker), and with it
// the host.
//
// # Workspaces as processes
//
// A workspace may be a process of this host. All that a job starts ends with the job, so a build asks the daemon for
// the process, with the command "workspace-process" on a private socket (processServer). The daemon starts it in a
// sandbox of the workspace (spaces), with an account that owns the workspace's home folder. It outlives the job and the
// daemon, which finds it again through a note in the workspace's folder.
package host
