// Package job is the seam between the provisioner daemon, which leases jobs and carries their events, and the executors,
// which know how to run a template. It knows neither the mesh nor Terraform.
package job

import (
	"context"
	"io"

	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// Executor runs jobs. Safe for concurrent use: the daemon calls Run once per slot at a time.
type Executor interface {
	// Name says what runs the jobs, for people: "terraform 1.11.4".
	Name() string
	// Run runs one job to its end and returns its result, never nil. A failure of the job is in the result, with the state
	// that was reached. Closing stop asks for a graceful end (Terraform's interrupt), the end of ctx for an end at once. When
	// Run returns, no process that it started lives and none of its files is left but caches.
	Run(ctx context.Context, stop <-chan struct{}, run Run) *provisionerpb.Result
	// Recover looks at what is left on disk of a job that a killed process of this host had been running. It ends processes the
	// job left and removes its files. With an error it still returns what it knows.
	Recover(ctx context.Context, jobID [16]byte, epoch uint64, known Known) (Remains, error)
	// Close frees what the executor keeps warm. Idempotent.
	Close() error
}

// Known is what a killed process had handed to its Sink.
type Known struct {
	Checkpoint []byte // the last state, nil for none
	Changes    []*provisionerpb.Change
}

// Remains are what a killed process left of a job.
type Remains struct {
	// State is the newest complete one, the checkpoint included; nil when there is none. Resources that were begun and not
	// finished are marked in it.
	State []byte
	// Unknown are the addresses of resources that may exist in another form than State says, or without being in it: the job had
	// begun to change them, and the state does not show how that ended. Tainted are those that State marks.
	Unknown, Tainted []string
}

// Run is one job and its surroundings.
type Run struct {
	Offer *provisionerpb.Offer
	// Slot is this job's slot number on the daemon, from 0: no two jobs have the same at one time.
	Slot int
	// Source opens the template's source archive, a tar. Called at most once, and not at all when a cache has it.
	Source func(context.Context) (io.ReadCloser, error)
	Sink   Sink
}

// Sink takes what a job produces, in order. Its methods do not block on the network: events are journalled on disk. Safe for
// concurrent use.
type Sink interface {
	Log(line *provisionerpb.LogLine)
	// Change records a step of a change to a resource. It outlives the host, unless the disk fails.
	Change(change *provisionerpb.Change)
	// Checkpoint records Terraform's state as of now. Only complete, parsed states.
	Checkpoint(state []byte)
	// Resources reports what exists by now, so that agents are let in before the job ends.
	Resources(resources []*provisionerpb.Resource)
}
