package result

import (
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// dataless lists the beginnings of the types of resources that hold no data of a user: they exist in the state alone,
// or are made again from what the template says.
var dataless = []string{"coder_", "random_", "time_", "tls_", "docker_image", "docker_registry_image"}

func holdsData(typ string) bool {
	return !slices.ContainsFunc(dataless, func(beginning string) bool { return strings.HasPrefix(typ, beginning) })
}

// Guarded reports whether a build's plan must be checked: not everything may be replaced, and the state has resources
// that may hold data.
func Guarded(work *provisionerpb.WorkspaceBuild) bool {
	if work.GetReplacement() == nil || work.GetTransition() == provisionerpb.Transition_TRANSITION_DELETE {
		return false
	}
	s, err := ParseState(work.GetState())
	return err == nil && slices.ContainsFunc(s.Nodes("managed"), func(n Node) bool { return holdsData(n.typ) })
}

// Lost returns the planned changes that replace or delete resources of a state that may hold data, sorted by address.
func Lost(planned []Event, state []byte) []Event {
	var lost []Event
	for _, e := range planned {
		destroys := e.Action == "replace" || e.Action == "delete"
		if destroys && holdsData(e.Resource) && len(tfstate.Tainted(state, []string{e.Addr})) == 0 {
			lost = append(lost, e)
		}
	}
	slices.SortFunc(lost, func(a, b Event) int { return strings.Compare(a.Addr, b.Addr) })
	return slices.CompactFunc(lost, func(a, b Event) bool { return a.Addr == b.Addr })
}

// Created returns the addresses of the resources that a build's changes created.
func Created(changes []*provisionerpb.Change) (created []string) {
	for _, c := range changes {
		if c.GetCreates() && c.GetEnd() == provisionerpb.Change_END_COMPLETE {
			created = append(created, printable.Line(c.GetAddress()))
		}
	}
	return created
}

// WithoutUnforeseen omits, from the planned changes that lose data, the replacements that every build makes: those for
// values alone that are not known before. same says that the build has the version and the values of the one before.
func WithoutUnforeseen(shown *tfjson.Plan, same bool, lost []Event) []Event {
	anew := map[string]bool{}
	for _, c := range shown.ResourceChanges {
		if c.Change == nil || !c.Change.Actions.Replace() {
			continue
		}
		anew[c.Address] = unforeseen(c.Change)
		// What is replaced here for another value gives others values that are not known yet.
		if !anew[c.Address] && !same {
			return lost
		}
	}
	return slices.DeleteFunc(lost, func(e Event) bool { return e.Action == "replace" && anew[e.Addr] })
}

// unforeseen reports whether a resource is replaced only for values that are not known before it is made, or that are
// sensitive.
func unforeseen(c *tfjson.Change) bool {
	for _, path := range c.ReplacePaths {
		steps, ok := path.([]any)
		if !ok || !markedAt(c.AfterUnknown, steps) && !markedAt(c.AfterSensitive, steps) {
			return false
		}
	}
	return len(c.ReplacePaths) > 0
}

// markedAt reports whether a tree of marks, as in a plan's after_unknown, has one at a path, above it or below it.
func markedAt(tree any, path []any) bool {
	for _, step := range path {
		switch inner := tree.(type) {
		case map[string]any:
			name, _ := step.(string)
			tree = inner[name]
		case []any:
			i, ok := step.(float64)
			if !ok || i < 0 || int(i) >= len(inner) {
				return false
			}
			tree = inner[int(i)]
		}
	}
	return holds(tree)
}
