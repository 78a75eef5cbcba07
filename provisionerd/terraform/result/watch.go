package result

import (
	"bytes"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/job"
)

const (
	// checkpointEvery is the minimum time between two checkpoints of a small state.
	checkpointEvery = time.Second
	// checkpointRate bounds how many bytes of checkpoints are sent per second: large states are sent less often.
	checkpointRate = 4 << 20
	// stateDelay is how long to wait for the state, which Terraform writes shortly after it reports that a resource is
	// complete.
	stateDelay    = 3 * time.Millisecond
	stateAttempts = 20
	// stateRetry is the longest pause between two looks for a completed part of an agent that the state still lacks.
	stateRetry = time.Second
)

// Watch follows the state file of a running build. It sends checkpoints, and the resources as soon as an agent's token
// is known, because the agent may connect before the build ends, and again when everything that belongs to the agents
// is known.
type Watch struct {
	folder *Folder
	sink   job.Sink
	agents bool
	plan   *agentChanges

	wake    chan struct{}
	changed atomic.Bool // the state is about to change
	done    chan struct{}
	over    sync.WaitGroup
	last    []byte // the newest complete state seen; read it after over
}

// NewWatch begins to follow the state in a folder. initial is the state before the build; agents asks for the
// resources, too. The caller passes Terraform's events to Event, and calls Close when Terraform has ended.
func NewWatch(folder *Folder, sink job.Sink, initial []byte, agents bool) *Watch {
	w := &Watch{folder: folder, sink: sink, agents: agents, plan: newAgentChanges(initial),
		wake: make(chan struct{}, 1), done: make(chan struct{}), last: initial}
	w.over.Go(w.run)
	return w
}

// Event is called for each event of Terraform and does not block.
func (w *Watch) Event(e Event) {
	w.plan.event(e)
	switch e.Kind {
	case "apply_complete", "apply_errored":
		w.changed.Store(true)
	case "apply_start":
	default:
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // a check is pending anyway
	}
}

// Close ends the watch, waits for it, and returns the newest complete state that it has seen, or the initial one. The
// file may be torn by now. The result contains what the watch has not sent.
func (w *Watch) Close() []byte {
	close(w.done)
	w.over.Wait()
	return w.last
}

func (w *Watch) run() {
	var sent time.Time
	var pending []byte
	var last reported
	known, err := ParseState(w.last)
	if err != nil {
		known = &State{} // nothing was built yet
	}
	var again <-chan time.Time
	pause := stateDelay
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-timer.C:
			if pending != nil {
				w.sink.Checkpoint(pending)
				pending, sent = nil, time.Now()
			}
			timer.Reset(time.Hour)
			continue
		case <-w.wake:
			pause = stateDelay
		case <-again:
			pause = min(2*pause, stateRetry)
		}
		text, s := w.look(w.last, w.changed.Swap(false))
		if s != nil {
			w.last, pending, known = text, text, s
			if w.agents {
				last = w.report(s, last)
			}
		}
		again = nil
		if w.agents && w.plan.late(known) {
			again = time.After(pause)
		}
		if s == nil {
			continue
		}
		if wait := checkpointPause(len(pending)) - time.Since(sent); wait > 0 {
			timer.Reset(wait)
			continue
		}
		w.sink.Checkpoint(pending)
		pending, sent = nil, time.Now()
	}
}

// checkpointPause returns the minimum time before a checkpoint of a number of bytes.
func checkpointPause(size int) time.Duration {
	return max(checkpointEvery, time.Duration(size/checkpointRate)*time.Second)
}

// look reads the state until it differs from last and shows every change that has ended. If no change is expected it
// reads it only once.
func (w *Watch) look(last []byte, expected bool) (newest []byte, parsed *State) {
	for range stateAttempts {
		select {
		case <-w.done:
			return newest, parsed
		case <-time.After(stateDelay):
		}
		text, err := w.folder.read("terraform.tfstate")
		if err == nil && !bytes.Equal(text, last) {
			if s, err := ParseState(text); err == nil {
				newest, parsed, last = text, s, text
			}
		}
		if parsed != nil && !w.plan.late(parsed) {
			return newest, parsed
		}
		if parsed == nil && !expected && err == nil {
			return nil, nil
		}
	}
	return newest, parsed
}

// reported is what the server knows about the agents.
type reported struct {
	tokens   string
	complete bool
}

// report sends the resources if the agents' tokens differ from last, or if everything that belongs to the agents has
// become known.
func (w *Watch) report(s *State, last reported) reported {
	resources, err := DeriveResources(nil, s.Nodes("managed"))
	if err != nil {
		return last // half-built states may be odd; the result reports remaining errors
	}
	now := reported{complete: !w.plan.outstanding(s)}
	for _, r := range resources {
		for _, a := range r.GetAgents() {
			now.tokens += a.GetToken() + "\n"
			a.Complete = now.complete
			for range a.GetDevcontainers() { // whose agents have no token yet
				now.tokens += "+"
			}
		}
	}
	if now != last && now.tokens != "" {
		w.sink.Resources(resources)
	}
	return now
}

// agentChanges records what a build changes among the things that belong to agents. It is safe for concurrent use.
type agentChanges struct {
	before map[string]json.RawMessage // the attributes of all instances before the build

	mu      sync.Mutex
	planned map[string]string // address → action, of what belongs to agents
	ended   map[string]int    // how many steps of the change are complete
}

func newAgentChanges(initial []byte) *agentChanges {
	p := &agentChanges{planned: map[string]string{}, ended: map[string]int{}}
	if s, err := ParseState(initial); err == nil {
		p.before = s.instances()
	}
	return p
}

// event handles an event of Terraform: plans, which precede all changes, and changes that it made.
func (p *agentChanges) event(e Event) {
	switch e.Resource {
	case "coder_agent", "coder_app", "coder_script", "coder_env", devcontainer:
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case "planned_change":
		switch e.Action {
		case "read", "noop", "move":
		default:
			p.planned[e.Addr] = e.Action
		}
	case "apply_complete":
		p.ended[e.Addr]++
	}
}

// outstanding reports whether s lacks anything that the plan makes and that belongs to agents.
func (p *agentChanges) outstanding(s *State) bool {
	return p.lacks(s, func(string) bool { return true })
}

// late reports whether s lacks such a change that Terraform has reported as complete.
func (p *agentChanges) late(s *State) bool {
	return p.lacks(s, func(addr string) bool { return p.ended[addr] >= steps(p.planned[addr]) })
}

// steps returns how often Terraform reports an action as complete: a replacement is a deletion and a creation.
func steps(action string) int {
	if action == "replace" {
		return 2
	}
	return 1
}

func (p *agentChanges) lacks(s *State, counts func(addr string) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.planned) == 0 {
		return false
	}
	now := s.instances()
	for addr, action := range p.planned {
		if !counts(addr) {
			continue
		}
		attrs, is := now[addr]
		done := false
		switch action {
		case "create":
			done = is
		case "update", "replace":
			done = is && !bytes.Equal(attrs, p.before[addr])
		case "delete", "forget", "remove":
			done = !is
		}
		if !done {
			return true
		}
	}
	return false
}
