package terraform

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// touch is one step of a change to a resource, one line of JSON in the slot's list.
type touch struct {
	Addr string `json:"addr"`
	Made bool   `json:"made,omitempty"` // the change is to create the resource
	// End is how the change ended: "" not yet, "complete", or "errored" with Terraform there to write down what became of it.
	End string `json:"end,omitempty"`
}

// touched is the list of what a job has begun to change. It is on disk too, beside the slot, because whoever finds the remains
// of a killed job must be able to name what the state may lack. Safe for concurrent use.
type touched struct {
	mu    sync.Mutex
	steps []touch
	file  *os.File // nil: none could be made
}

func newTouched(name string) (*touched, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return &touched{}, fmt.Errorf("note changes: %w", err)
	}
	return &touched{file: file}, nil
}

// event takes in what Terraform says.
func (t *touched) event(e event) {
	step := touch{Addr: e.addr, Made: e.action == "create"}
	switch e.kind {
	case "apply_start":
	case "apply_complete", "apply_errored":
		step.End = strings.TrimPrefix(e.kind, "apply_")
	default:
		return
	}
	if e.addr == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = append(t.steps, step)
	if t.file == nil {
		return
	}
	line, err := json.Marshal(step)
	if err == nil {
		_, err = t.file.Write(append(line, '\n'))
	}
	if err != nil {
		// A full disk: what is in memory names it unless this process is killed, too.
		t.file.Close()
		t.file = nil
	}
}

// lost is lostIn for the state that was reached.
func (t *touched) lost(state []byte) (unknown, failed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lostIn(t.steps, state)
}

func (t *touched) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}

// readTouched reads a list that a killed process left. A torn last line counts as not written.
func readTouched(name string) ([]touch, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read changes: %w", err)
	}
	defer file.Close()
	var steps []touch
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var step touch
		if json.Unmarshal(lines.Bytes(), &step) == nil && step.Addr != "" {
			steps = append(steps, step)
		}
	}
	if err := lines.Err(); err != nil {
		return steps, fmt.Errorf("read changes: %w", err)
	}
	return steps, nil
}

// lostIn returns, sorted, the addresses of resources that may exist in another form than the state says: their change did not
// end, or they were created and the state is older than that. failed are those whose change ended with an error.
func lostIn(steps []touch, state []byte) (unknown, failed []string) {
	open := map[string]touch{} // the last step of each
	for _, step := range steps {
		open[step.Addr] = step
	}
	has := map[string]bool{}
	if s, err := parseState(state); err == nil {
		has = s.addresses()
	}
	for addr, step := range open {
		switch {
		case step.End == "errored":
			failed = append(failed, addr)
		case step.End == "" || step.Made && !has[addr]:
			unknown = append(unknown, addr)
		}
	}
	slices.Sort(unknown)
	slices.Sort(failed)
	return unknown, failed
}

// addresses are the full addresses of the managed resources in s, as Terraform writes them.
func (s *state) addresses() map[string]bool {
	all := map[string]bool{}
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		prefix := r.Type + "." + r.Name
		if r.Module != "" {
			prefix = r.Module + "." + prefix
		}
		for _, i := range r.Instances {
			if i.Deposed != "" {
				continue
			}
			switch key := i.IndexKey.(type) {
			case nil:
				all[prefix] = true
			case string:
				all[prefix+"["+quoteKey(key)+"]"] = true
			default:
				all[prefix+"["+indexText(key)+"]"] = true
			}
		}
	}
	return all
}

// quoteKey writes the key of a for_each as Terraform does in addresses.
func quoteKey(key string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", "$${", "%{", "%%{").Replace(key)
	return `"` + quoted + `"`
}
