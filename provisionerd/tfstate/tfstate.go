// Package tfstate examines a raw Terraform state after an interrupted job: which resources it may lack, and which of
// its resources are unfinished. It owns the rules for that and rewrites the state. It also reads the tokens of agents.
// It runs nothing, and knows neither jobs nor storage.
//
// Terraform writes a resource into its state once the provider has created it, before the resource's provisioners have
// run, and marks it as tainted only after they have failed. After a kill the state therefore shows unfinished resources
// as complete. Settle marks them, so that the next build replaces them.
package tfstate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Outcome lists, sorted, the resources whose change did not succeed. Addresses are Terraform's, with indexes.
type Outcome struct {
	// Unknown resources may differ from the state, or exist without being in it.
	Unknown []string
	// Tainted resources are unfinished and marked in the state, so the next build replaces them.
	Tainted []string
	// Failed resources ended with an error that Terraform recorded, without marking them.
	Failed []string
}

// Settle compares the changes that a job began, in order, with the state that it left. ended is set if Terraform itself
// ended and its last state was read, so that the state records errors. Settle returns the state to continue from: the
// given one, or one with a higher serial if resources had to be marked. It returns an unreadable state unchanged.
func Settle(state []byte, changes []*provisionerpb.Change, ended bool) (Outcome, []byte) {
	last := map[string]*provisionerpb.Change{}
	for _, c := range changes {
		last[c.GetAddress()] = c
	}
	has, err := statuses(state)
	if err != nil {
		has = map[string]string{} // no resource is known to exist
	}
	var out Outcome
	for addr, c := range last {
		errored := c.GetEnd() == provisionerpb.Change_END_ERRORED
		status, kept := has[addr]
		switch {
		case status == statusTainted: // by Terraform itself, which outlived the failure
			out.Tainted = append(out.Tainted, addr)
		case errored && (ended || !c.GetCreates()):
			out.Failed = append(out.Failed, addr)
		case !c.GetCreates() && c.GetEnd() == provisionerpb.Change_END_UNSPECIFIED:
			out.Unknown = append(out.Unknown, addr)
		case c.GetCreates() && !kept:
			out.Unknown = append(out.Unknown, addr)
		case c.GetCreates() && c.GetEnd() != provisionerpb.Change_END_COMPLETE:
			out.Tainted = append(out.Tainted, addr)
		}
	}
	if marked, err := taint(state, out.Tainted); err == nil {
		state = marked
	} else { // unreachable with a state that addresses could read
		out.Unknown = append(out.Unknown, out.Tainted...)
		out.Tainted = nil
	}
	slices.Sort(out.Unknown)
	slices.Sort(out.Tainted)
	slices.Sort(out.Failed)
	return out, state
}

// Sentence describes the unknown and the tainted resources for users, or returns "" if there are none.
func (o Outcome) Sentence() string {
	var parts []string
	if len(o.Unknown) > 0 {
		parts = append(parts, "In flight, so maybe made without being in the state: "+strings.Join(o.Unknown, ", ")+".")
	}
	if len(o.Tainted) > 0 {
		parts = append(parts,
			"Begun and not finished, so marked in the state and made anew by the next build: "+strings.Join(o.Tainted,
				", ")+".")
	}
	return strings.Join(parts, " ")
}

// Address returns the full address of an instance. index is nil, a float64 or a string, as in JSON.
func Address(module, typ, name string, index any) string {
	prefix := typ + "." + name
	if module != "" {
		prefix = module + "." + prefix
	}
	switch key := index.(type) {
	case nil:
		return prefix
	case string:
		return prefix + "[" + quoteKey(key) + "]"
	case float64:
		return prefix + "[" + strconv.FormatFloat(key, 'f', -1, 64) + "]"
	default:
		return prefix + "[" + fmt.Sprint(key) + "]"
	}
}

// quoteKey quotes the key of a for_each as Terraform does in addresses.
func quoteKey(key string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", "$${", "%{", "%%{").
		Replace(key)
	return `"` + quoted + `"`
}

// AgentToken returns the token of the coder_agent with an id, or "" if a state has none.
func AgentToken(state []byte, id uuid.UUID) string {
	var s struct {
		Resources []struct {
			Mode      string `json:"mode"`
			Type      string `json:"type"`
			Instances []struct {
				Deposed    string          `json:"deposed"`
				Attributes json.RawMessage `json:"attributes"`
			} `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return ""
	}
	for _, r := range s.Resources {
		if r.Mode != "managed" || r.Type != "coder_agent" {
			continue
		}
		for _, i := range r.Instances {
			var a struct {
				ID    string `json:"id"`
				Token string `json:"token"`
			}
			if json.Unmarshal(i.Attributes, &a) == nil && i.Deposed == "" && a.ID == id.String() {
				return a.Token
			}
		}
	}
	return ""
}

type resource struct {
	Module    string     `json:"module"`
	Mode      string     `json:"mode"`
	Type      string     `json:"type"`
	Name      string     `json:"name"`
	Instances []instance `json:"instances"`
}

type instance struct {
	IndexKey any    `json:"index_key"`
	Deposed  string `json:"deposed"`
	Status   string `json:"status"`
}

var errNotState = errors.New("not a Terraform state of version 4")

// statusTainted is the status of an instance that the next build replaces. Others have none.
const statusTainted = "tainted"

// Resources returns the addresses of the managed resources in a state, sorted, without those that exist in the state
// alone: agents, apps and what else begins with coder_.
func Resources(state []byte) ([]string, error) {
	all, err := statuses(state)
	maps.DeleteFunc(all, func(addr, _ string) bool {
		typ, _, _ := strings.Cut(addr[modulePath().FindStringIndex(addr)[1]:], ".")
		return strings.HasPrefix(typ, "coder_")
	})
	return slices.Sorted(maps.Keys(all)), err
}

// modulePath matches the modules at the beginning of an address.
var modulePath = lazyregexp.New(`^(module\.[^.\[]+(\[(\d+|"([^"\\]|\\.)*")\])?\.)*`)

// Tainted returns those of the addresses that are tainted in a state, or all of them if the state is empty or
// unreadable.
func Tainted(state []byte, addrs []string) []string {
	all, err := statuses(state)
	if err != nil || len(bytes.TrimSpace(state)) == 0 {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool { return all[addr] != statusTainted })
}

// statuses returns the managed resources in a state by address, with their status, or none if state is empty.
func statuses(state []byte) (map[string]string, error) {
	all := map[string]string{}
	if len(bytes.TrimSpace(state)) == 0 {
		return all, nil
	}
	var s struct {
		Version   int        `json:"version"`
		Resources []resource `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotState, err)
	}
	if s.Version != 4 {
		return nil, errNotState
	}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if r.Mode == "managed" && i.Deposed == "" {
				all[Address(r.Module, r.Type, r.Name, i.IndexKey)] = i.Status
			}
		}
	}
	return all, nil
}

// taint marks instances. Apart from whitespace and the order of keys it changes nothing else.
func taint(state []byte, addrs []string) ([]byte, error) {
	if len(addrs) == 0 {
		return state, nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(state, &top); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotState, err)
	}
	var serial uint64
	if err := json.Unmarshal(top["serial"], &serial); err != nil {
		return nil, fmt.Errorf("read serial: %w", err)
	}
	var resources []map[string]json.RawMessage
	if err := json.Unmarshal(top["resources"], &resources); err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	marked := false
	for _, raw := range resources {
		done, err := taintResource(raw, addrs)
		if err != nil {
			return nil, err
		}
		marked = marked || done
	}
	if !marked {
		return state, nil
	}
	var err error
	if top["resources"], err = encode(resources); err != nil {
		return nil, err
	}
	if top["serial"], err = encode(serial + 1); err != nil {
		return nil, err
	}
	return encode(top)
}

func taintResource(raw map[string]json.RawMessage, addrs []string) (marked bool, err error) {
	text, err := encode(raw)
	if err != nil {
		return false, err
	}
	var r resource
	if err := json.Unmarshal(text, &r); err != nil {
		return false, fmt.Errorf("read resource: %w", err)
	}
	if r.Mode != "managed" {
		return false, nil
	}
	var instances []map[string]json.RawMessage
	if err := json.Unmarshal(raw["instances"], &instances); err != nil {
		return false, fmt.Errorf("read instances: %w", err)
	}
	for n, i := range r.Instances {
		if i.Deposed != "" || i.Status == statusTainted || instances[n] == nil ||
			!slices.Contains(addrs, Address(r.Module, r.Type, r.Name, i.IndexKey)) {
			continue
		}
		instances[n]["status"] = json.RawMessage(`"` + statusTainted + `"`)
		marked = true
	}
	if marked {
		raw["instances"], err = encode(instances)
	}
	return marked, err
}

func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
