// Package workspaces owns workspaces and their builds: creating them, listing them in a constant number of queries,
// watching them, and applying a build job's results.
//
// A build is one start, stop or delete. Builds of a workspace are numbered and never overlap: creating one takes the
// workspace's row lock and is refused while the previous build is active. A build begins with the Terraform state of
// the previous build. Every checkpoint and the end of its job replace that state, even if the job fails.
//
//	create ──> start ──> stop ──> start ──> … ──> delete (the workspace is gone when its job has succeeded)
//
// What a workspace is doing follows from the latest build alone: its transition and its job's status.
//
// One loop carries out what package policy decides: scheduled starts and stops, dormancy, deletion and clean-up. Its
// queue is the table workspace_policy, which triggers wake, and a workspace is claimed by its row, so any number of
// servers may run it.
//
// The package must not know how jobs reach a provisioner, nor how agents connect.
package workspaces
