package terraform

import (
	"sync"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// touched is the list of what a job has begun to change. The sink also keeps it, beside the job's journal: whatever finds the remains of a
// killed job must be able to name what the state may lack. It is safe for concurrent use.
type touched struct {
	sink job.Sink

	mu    sync.Mutex
	steps []*provisionerpb.Change
}

// newTouched returns an empty list that passes each step to sink, too.
func newTouched(sink job.Sink) *touched { return &touched{sink: sink} }

// event handles an event of Terraform.
func (t *touched) event(e event) {
	step := changeOf(e)
	if step == nil {
		return
	}
	t.mu.Lock()
	t.steps = append(t.steps, step)
	t.mu.Unlock()
	t.sink.Change(step)
}

// changeOf returns the step that an event reports, or nil.
func changeOf(e event) *provisionerpb.Change {
	step := &provisionerpb.Change{Address: e.addr, Creates: e.action == "create"}
	switch e.kind {
	case "apply_start":
	case "apply_complete":
		step.End = provisionerpb.Change_END_COMPLETE
	case "apply_errored":
		step.End = provisionerpb.Change_END_ERRORED
	default:
		return nil
	}
	if e.addr == "" {
		return nil
	}
	return step
}

// all returns the steps so far.
func (t *touched) all() []*provisionerpb.Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.steps[:len(t.steps):len(t.steps)]
}
