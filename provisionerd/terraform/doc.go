// Package terraform runs provisioner jobs with the Terraform (or OpenTofu) program.
//
// It owns the template cache, what init may fetch and with which credentials, and the order of commands in a job.
// Package template reads a template's source, package host confines and runs programs on this machine, and package
// result reads what Terraform says and leaves. It knows neither the mesh nor coderd: jobs come in as offers and leave
// as events of package job.
//
// A workspace build is one Terraform process:
//
//	offer ──> template cache (extract, init once per template version)
//	            │ copy of the source, link to .terraform
//	            v
//	          slot s3: w/ source, state, variables    h/ HOME    t/ TMPDIR
//	            │
//	            ├── worker: our own program serving the coder provider, its environment holds this job's facts
//	            │     ^ connections, handed over by the daemon
//	            ├── gate: a unix socket in TMPDIR, in TF_REATTACH_PROVIDERS; the daemon admits the job's own processes
//	            └── sandbox.Exec ──> bwrap ──> sandbox-init ──> terraform apply -json      (see package sandbox)
//	                                          │ one JSON line per event, terraform.tfstate after each resource
//	                                          v
//	                                 log lines, checkpoints, resources, result
//
// What confines a job, and what it shares with the host, is in the documentation of package host.
package terraform
