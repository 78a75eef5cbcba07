// Package workspaces owns workspaces and their builds: making them, listing them in a constant number of queries, watching them,
// and what a build job does to its workspace.
//
// A build is one start, stop or delete. Builds of a workspace are numbered and never overlap: making one takes the
// workspace's row lock, and is refused while the build before is active. Terraform's state travels along: a build begins with
// the state of the build before, and every checkpoint and the end of its job replace it, also when the job fails.
//
//	create ──> start ──> stop ──> start ──> … ──> delete (the workspace is gone when its job has succeeded)
//
// What a workspace is doing follows from the latest build alone: its transition and its job's status.
//
// It must not know how jobs reach a provisioner, nor how agents connect.
package workspaces
