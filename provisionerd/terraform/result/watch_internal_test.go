package result

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// announced is a sink that keeps the tokens of the agents that it is told of.
type announced struct {
	mu     sync.Mutex
	tokens []string
}

func (*announced) Log(*provisionerpb.LogLine)   {}
func (*announced) Change(*provisionerpb.Change) {}
func (*announced) Checkpoint([]byte)            {}
func (a *announced) Resources(resources []*provisionerpb.Resource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range resources {
		for _, agent := range r.GetAgents() {
			a.tokens = append(a.tokens, agent.GetToken())
		}
	}
}

func (a *announced) all() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.tokens)
}

// agentState returns the text of a state with an agent.
func agentState(serial int, id, token string) []byte {
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":"l","resources":[
		{"mode":"managed","type":"coder_agent","name":"main","instances":[{"attributes":{"id":%q,"token":%q,"os":"linux","arch":"amd64"}}]},
		{"mode":"managed","type":"terraform_data","name":"vm","instances":[{"attributes":{"id":"x"},"dependencies":["coder_agent.main"]}]}]}`, serial, id, token)
}

// TestLateStateIsAnnounced checks that an agent is announced while the build runs, however long Terraform takes from reporting the agent
// as complete to writing the state, and whatever it reports in between.
func TestLateStateIsAnnounced(t *testing.T) {
	t.Parallel()
	const (
		one = "11111111-1111-4111-8111-111111111111"
		two = "22222222-2222-4222-8222-222222222222"
	)
	agent := func(kind, action string) Event {
		return Event{Kind: kind, Addr: "coder_agent.main", Resource: "coder_agent", Action: action}
	}
	vm := Event{Kind: "apply_start", Addr: "terraform_data.vm", Resource: "terraform_data", Action: "create"}
	for name, c := range map[string]struct {
		before []byte
		events []Event
		after  []byte
		want   string
	}{
		"created": {
			events: []Event{agent("planned_change", "create"), agent("apply_start", "create"), agent("apply_complete", "create"), vm},
			after:  agentState(2, one, "first"), want: "[first]",
		},
		"replaced": {
			before: agentState(1, one, "first"),
			events: []Event{
				agent("planned_change", "replace"), agent("apply_start", "delete"), agent("apply_complete", "delete"),
				agent("apply_start", "create"), agent("apply_complete", "create"), vm,
			},
			after: agentState(2, two, "second"), want: "[second]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "terraform.tfstate")
				if c.before != nil {
					if err := os.WriteFile(path, c.before, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				folder, err := OpenFolder(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer folder.Close()
				sink := &announced{}
				w := NewWatch(folder, sink, c.before, true)
				for _, e := range c.events {
					w.Event(e)
				}
				time.Sleep(time.Minute) // of the bubble: the machine is busy
				if got := sink.all(); got != "[]" {
					t.Errorf("announced before the state has the agent: %s", got)
				}
				if err := os.WriteFile(path, c.after, 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * stateRetry)
				if got := sink.all(); got != c.want {
					t.Errorf("announced %s, want %s", got, c.want)
				}
				w.Close()
			})
		})
	}
}

// TestLate checks what the watch waits for: only what Terraform has reported as complete.
func TestLate(t *testing.T) {
	t.Parallel()
	p := newAgentChanges(nil)
	agent := Event{Kind: "planned_change", Addr: "coder_agent.main", Resource: "coder_agent", Action: "create"}
	p.event(agent)
	s := &State{}
	if p.late(s) {
		t.Error("a planned agent is late before it is complete")
	}
	agent.Kind = "apply_complete"
	p.event(agent)
	if !p.late(s) {
		t.Error("a complete agent that the state lacks is not late")
	}
	s, err := ParseState(agentState(1, "11111111-1111-4111-8111-111111111111", "first"))
	if err != nil {
		t.Fatal(err)
	}
	if p.late(s) {
		t.Error("an agent that the state has is late")
	}
}
