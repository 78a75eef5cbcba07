// Package terraform runs provisioner jobs with the Terraform (or OpenTofu) program.
//
// It owns the template cache, the slots that jobs run in, the provider worker, the sandbox, and the reading of Terraform's
// output and state. It knows neither the mesh nor coderd: jobs come in as offers and leave as events of package job.
//
// A workspace build is one Terraform process:
//
//	offer ──> template cache (extract, init once per template version)
//	            │ copy of the source, link to .terraform
//	            v
//	          slot s3: w/ source, state, variables    h/ HOME    <random>/ TMPDIR
//	            │
//	            ├── worker: our own program serving the coder provider, its environment holds this job's facts
//	            │     ^ connections, handed over by the daemon
//	            ├── gate: a unix socket in TMPDIR, in TF_REATTACH_PROVIDERS; the daemon admits the job's own processes
//	            └── sandbox-exec ──exec──> terraform apply -json      (own process group, killed after the job)
//	                                          │ one JSON line per event, terraform.tfstate after each resource
//	                                          v
//	                                 log lines, checkpoints, resources, result
//
// The provider reads its facts from the environment of its process, therefore every job has a worker of its own. Workers are
// started ahead and wait for the job's facts on their standard input. Terraform shows no certificate to a provider that it is
// attached to, so the kernel tells who connects: the daemon admits processes of the job's account that descend from the job's
// Terraform, and passes their connections to the worker, which listens nowhere. On systems other than Linux, where there is no
// sandbox, the socket's mode decides.
//
// # Isolation
//
// Terraform and everything a template starts (other providers, local-exec) sees an environment made of an allow-list, never
// the daemon's own. With Options.Isolation "auto", on Linux, it also runs under Landlock where the kernel has it: it can write
// only its slot, /tmp, /var/tmp, /dev/shm and the workspaces folder, and read only the system's folders, the template cache
// and the provider mirrors; it can read the environment and memory of no process outside its own sandbox. When the daemon runs
// as root, Terraform and the worker run as the account "nobody", with the group of the Docker socket when there is one; what that
// account could not reach is shown to Terraform in a mount namespace of its own (makeReachable). Where that account or
// mounting is not to be had, they run as root, under Landlock. What isolation does not do: it does not restrict the network, nor
// connections to unix sockets, and without the change of account a template can still send signals to the daemon. A template
// that reaches Docker's socket owns the host. /tmp is writable for every template: keep no secrets there.
//
// A process that a local-exec puts into a session of its own (setsid) outlives the job: that is how a workspace can be a plain
// process of this host. It stays in the sandbox for its whole life.
package terraform
