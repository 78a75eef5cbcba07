// Package job defines the interface between the provisioner daemon, which leases jobs and delivers their events, and
// executors, which run templates. It knows neither the mesh nor Terraform.
package job

import (
	"context"
	"io"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Executor runs jobs. It must be safe for concurrent use: the daemon calls Run once per slot at a time.
type Executor interface {
	// Name describes what runs the jobs, for users: "terraform 1.11.4".
	Name() string
	// Run runs one job to its end and returns its result, never nil. The result reports a failure of the job, with the
	// state reached. Closing stop requests a graceful end (Terraform's interrupt); the end of ctx demands an immediate
	// end. When Run returns, all processes that it started have ended, and all its files except caches are removed.
	Run(ctx context.Context, stop <-chan struct{}, run Run) *provisionerpb.Result
	// Recover examines what a job left on disk when the process that ran it on this host was killed. It ends the job's
	// processes and removes its files. Even with an error, it returns what it found.
	Recover(ctx context.Context, jobID [16]byte, epoch uint64, known Known) (Remains, error)
	// Close frees what the executor keeps prepared. It is idempotent.
	Close() error
}

// Known is what a killed process had passed to its Sink.
type Known struct {
	Checkpoint []byte // the last state, or nil
	Changes    []*provisionerpb.Change
}

// Remains is what a killed process left of a job.
type Remains struct {
	// State is the newest complete state, which may be the checkpoint, or nil. It marks unfinished resources.
	State []byte
	// Unknown lists the addresses of resources that may differ from State, or exist without being in it: the job had
	// begun to change them, and the state does not show the outcome. Tainted lists those that State marks.
	Unknown, Tainted []string
}

// Run is one job and its surroundings.
type Run struct {
	Offer *provisionerpb.Offer
	// Slot is this job's slot number on the daemon, from 0. No two jobs have the same slot at the same time.
	Slot int
	// Source opens the template's source archive, a tar. It is called at most once, and not at all if a cache has it.
	Source func(context.Context) (io.ReadCloser, error)
	Sink   Sink
}

// Sink receives what a job produces, in order. Its methods do not block on the network: events are journaled on disk.
// It is safe for concurrent use.
type Sink interface {
	Log(line *provisionerpb.LogLine)
	// Change records a step of a change to a resource. The record survives a crash of the host, unless the disk fails.
	Change(change *provisionerpb.Change)
	// Checkpoint records Terraform's current state, which must be complete and valid.
	Checkpoint(state []byte)
	// Resources reports the resources that exist so far, so that the server admits agents before the job ends.
	Resources(resources []*provisionerpb.Resource)
}
