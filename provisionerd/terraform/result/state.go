package result

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// State is the part of Terraform's raw state that we read.
type State struct {
	Version   int                    `json:"version"`
	Serial    uint64                 `json:"serial"`
	Lineage   string                 `json:"lineage"`
	Outputs   map[string]StateOutput `json:"outputs"`
	Resources []stateResource        `json:"resources"`
}

// StateOutput is an output of the root module.
type StateOutput struct {
	Value json.RawMessage `json:"value"`
}

type stateResource struct {
	Module    string          `json:"module"`
	Mode      string          `json:"mode"` // managed, data
	Type      string          `json:"type"`
	Name      string          `json:"name"`
	Instances []stateInstance `json:"instances"`
}

type stateInstance struct {
	IndexKey     any             `json:"index_key"`
	Attributes   json.RawMessage `json:"attributes"`
	Dependencies []string        `json:"dependencies"`
	Deposed      string          `json:"deposed"`
}

// errNotState reports that bytes are not a complete state.
var errNotState = errors.New("not a complete Terraform state")

// ParseState parses a raw state. Terraform writes its state in place, so the file may be incomplete.
func ParseState(text []byte) (*State, error) {
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotState, err)
	}
	if s.Version != 4 || s.Lineage == "" {
		return nil, errNotState
	}
	return &s, nil
}

// Newest returns the newest complete state, or nil. earlier is a state that was read before the others: a file may be
// torn because Terraform was killed while writing it, or hold an older state that was written again. States of
// different lineages cannot be compared; the later one wins.
func Newest(earlier []byte, later ...[]byte) []byte {
	var newest []byte
	var last *State
	for _, text := range append([][]byte{earlier}, later...) {
		s, err := ParseState(text)
		if err != nil {
			continue
		}
		if last == nil || s.Lineage != last.Lineage || s.Serial >= last.Serial {
			newest, last = text, s
		}
	}
	return newest
}

// Node is one resource instance, from a state or a plan.
type Node struct {
	module string // "module.a.module.b", without indexes
	typ    string
	name   string
	index  any // nil, float64 or string
	attrs  json.RawMessage
	deps   []string // addresses without indexes; transitive
}

// address returns the node's address without indexes.
func (n Node) address() string {
	if n.module == "" {
		return n.typ + "." + n.name
	}
	return n.module + "." + n.typ + "." + n.name
}

// Nodes returns the resource instances of a mode, "managed" or "data" for data sources, sorted by address and index.
func (s *State) Nodes(mode string) []Node { return s.nodesOf(mode, nil) }

// nodesWith returns the managed resources with other attributes, by the addresses that Terraform writes.
func (s *State) nodesWith(attrs map[string]json.RawMessage) []Node {
	return s.nodesOf("managed", attrs)
}

func (s *State) nodesOf(mode string, attrs map[string]json.RawMessage) []Node {
	var all []Node
	for _, r := range s.Resources {
		if r.Mode != mode {
			continue
		}
		for _, instance := range r.Instances {
			if instance.Deposed != "" {
				continue
			}
			if other := attrs[tfstate.Address(r.Module, r.Type, r.Name, instance.IndexKey)]; other != nil {
				instance.Attributes = other
			}
			n := Node{module: stripIndexes(r.Module), typ: r.Type, name: r.Name, index: instance.IndexKey,
				attrs: instance.Attributes}
			for _, dep := range instance.Dependencies {
				n.deps = append(n.deps, stripIndexes(dep))
			}
			all = append(all, n)
		}
	}
	sortNodes(all)
	return all
}

// instances returns the attributes of the managed resource instances in s, by the addresses that Terraform writes.
func (s *State) instances() map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if r.Mode == "managed" && i.Deposed == "" {
				all[tfstate.Address(r.Module, r.Type, r.Name, i.IndexKey)] = i.Attributes
			}
		}
	}
	return all
}

func sortNodes(nodes []Node) {
	slices.SortStableFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.address(), b.address()), compareIndex(a.index, b.index))
	})
}

func compareIndex(a, b any) int {
	x, xok := a.(float64)
	y, yok := b.(float64)
	if xok && yok {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(indexText(a), indexText(b))
}

func indexText(index any) string {
	switch v := index.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

// stripIndexes removes [0] and ["key"] from an address.
func stripIndexes(address string) string {
	if !strings.Contains(address, "[") {
		return address
	}
	var out strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(address); i++ {
		c := address[i]
		switch {
		case quoted && c == '\\':
			i++
		case depth > 0 && c == '"':
			quoted = !quoted
		case quoted:
		case c == '[':
			depth++
		case c == ']' && depth > 0:
			depth--
		case depth == 0:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// text returns a string or number as text, or "" for anything else.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return indexText(v)
	default:
		return ""
	}
}
