package result

import (
	"sync"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Changes is the list of what a job has begun to change. The sink also keeps it, beside the job's journal: whatever
// finds the remains of a killed job must be able to name what the state may lack. It is safe for concurrent use.
type Changes struct {
	sink job.Sink

	mu    sync.Mutex
	steps []*provisionerpb.Change
}

// NewChanges returns an empty list that passes each step to sink, too.
func NewChanges(sink job.Sink) *Changes { return &Changes{sink: sink} }

// Event handles an event of Terraform.
func (t *Changes) Event(e Event) {
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
func changeOf(e Event) *provisionerpb.Change {
	step := &provisionerpb.Change{Address: e.Addr, Creates: e.Action == "create"}
	switch e.Kind {
	case "apply_start":
	case "apply_complete":
		step.End = provisionerpb.Change_END_COMPLETE
	case "apply_errored":
		step.End = provisionerpb.Change_END_ERRORED
	default:
		return nil
	}
	if e.Addr == "" {
		return nil
	}
	return step
}

// All returns the steps so far.
func (t *Changes) All() []*provisionerpb.Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.steps[:len(t.steps):len(t.steps)]
}
