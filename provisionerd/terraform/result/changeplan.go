package result

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// maxPlanned bounds the changes of a plan.
const maxPlanned = 10_000

// ChangePlan returns the changes of a plan that was made with a state, sorted by address. It returns names of attributes
// at the top level and no values: a key inside an attribute may be a value. The error is about a plan that is too large.
func ChangePlan(shown *tfjson.Plan, state []byte) (*provisionerpb.ChangePlan, error) {
	out := &provisionerpb.ChangePlan{}
	var all []string
	for _, c := range shown.ResourceChanges {
		all = append(all, c.Address)
	}
	tainted := tfstate.Tainted(state, all)
	for _, c := range shown.ResourceChanges {
		action := plannedAction(c.Change)
		if action == provisionerpb.PlannedChange_ACTION_UNSPECIFIED {
			continue
		}
		if len(out.Changes) == maxPlanned {
			return nil, fmt.Errorf("read plan: it has more than %d resources", maxPlanned)
		}
		change := &provisionerpb.PlannedChange{
			Address: printable.Line(c.Address), Type: printable.Line(c.Type), Name: printable.Line(c.Name),
			Action: action, Attributes: attributesOf(c.Change, action),
		}
		if c.DeposedKey != "" { // an older object, which an interrupted replacement left
			change.Address += " (deposed object)"
		}
		change.HoldsData = c.Mode == tfjson.ManagedResourceMode && c.DeposedKey == "" &&
			action != provisionerpb.PlannedChange_ACTION_CREATE && holdsData(c.Type) && !slices.Contains(tainted, c.Address)
		out.Changes = append(out.Changes, change)
	}
	slices.SortStableFunc(out.Changes, func(a, b *provisionerpb.PlannedChange) int {
		return strings.Compare(a.GetAddress(), b.GetAddress())
	})
	return out, nil
}

// plannedAction returns the action of a change, or the zero value for an unknown one.
func plannedAction(c *tfjson.Change) provisionerpb.PlannedChange_Action {
	switch {
	case c == nil:
		return provisionerpb.PlannedChange_ACTION_UNSPECIFIED
	case c.Actions.Replace():
		return provisionerpb.PlannedChange_ACTION_REPLACE
	case c.Actions.Create():
		return provisionerpb.PlannedChange_ACTION_CREATE
	case c.Actions.Update():
		return provisionerpb.PlannedChange_ACTION_UPDATE
	case c.Actions.Delete():
		return provisionerpb.PlannedChange_ACTION_DELETE
	case c.Actions.NoOp():
		return provisionerpb.PlannedChange_ACTION_NO_OP
	case c.Actions.Read():
		return provisionerpb.PlannedChange_ACTION_READ
	case c.Actions.Forget():
		return provisionerpb.PlannedChange_ACTION_FORGET
	}
	return provisionerpb.PlannedChange_ACTION_UNSPECIFIED
}

// attributesOf returns which attributes an update changes or force a replacement.
func attributesOf(c *tfjson.Change, action provisionerpb.PlannedChange_Action) []string {
	names := map[string]bool{}
	switch action {
	case provisionerpb.PlannedChange_ACTION_REPLACE:
		for _, path := range c.ReplacePaths {
			if steps, ok := path.([]any); ok && len(steps) > 0 {
				if name, ok := steps[0].(string); ok {
					names[printable.Line(name)] = true
				}
			}
		}
	case provisionerpb.PlannedChange_ACTION_UPDATE:
		before, _ := c.Before.(map[string]any)
		after, _ := c.After.(map[string]any)
		unknown, _ := c.AfterUnknown.(map[string]any)
		for _, values := range []map[string]any{before, after, unknown} {
			for name := range values {
				if holds(unknown[name]) || !reflect.DeepEqual(before[name], after[name]) {
					names[printable.Line(name)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
