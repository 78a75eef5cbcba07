package terraform_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// secretOne and secretTwo are values of a sensitive variable.
const secretOne, secretTwo = "swordfish-one", "swordfish-two"

// changing is a template of which a version, a parameter and a sensitive variable change parts.
const changing = keeping + `
variable "password" {
  type      = string
  sensitive = true
}
resource "terraform_data" "kept" {
  input = "same"
}
resource "terraform_data" "label" {
  input = "VERSION"
}
resource "terraform_data" "guarded" {
  triggers_replace = { (var.password) = var.password }
}
`

// planned runs the plan of a start from a state, and returns it with the job's log.
func planned(
	t *testing.T, s starts, source, password string, state []byte, parameters []*provisionerpb.ParameterValue,
) (*provisionerpb.Result, *trial) {
	t.Helper()
	j := newTrial(t, files(source))
	return j.do(s.executor, &provisionerpb.Offer{Job: &provisionerpb.Offer_TemplateDryRun{
		TemplateDryRun: &provisionerpb.TemplateDryRun{
			Variables:  []*provisionerpb.VariableValue{{Name: "password", Value: password, Sensitive: true}},
			Parameters: parameters, Metadata: metadata(),
			Existing: &provisionerpb.Existing{State: state, PreviousParameters: zone("fra1")},
		},
	}}), j
}

// TestPlanOfExisting checks that a plan with a state says what the start does with each resource, shows no values, and
// leaves the state as it is.
func TestPlanOfExisting(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	first := strings.Replace(changing, "VERSION", "one", 1) + "resource \"terraform_data\" \"old\" {}\n"
	second := strings.Replace(changing, "VERSION", "two", 1) + "resource \"terraform_data\" \"new\" {}\n"
	state := s.ok(first, &provisionerpb.WorkspaceBuild{
		Transition: start, Parameters: zone("fra1"),
		Variables: []*provisionerpb.VariableValue{{Name: "password", Value: secretOne, Sensitive: true}},
	})
	before := string(state)

	result, j := planned(t, s, second, secretTwo, state, zone("muc1"))
	if result.GetError() != "" {
		t.Fatalf("%s\n%s", result.GetError(), j.sink.text())
	}
	got := map[string]string{}
	for _, c := range result.GetTemplateDryRun().GetPlan().GetChanges() {
		if strings.HasPrefix(c.GetAddress(), "terraform_data.") {
			got[c.GetAddress()] = fmt.Sprintf("%s %q %t", strings.TrimPrefix(c.GetAction().String(), "ACTION_"), c.GetAttributes(), c.GetHoldsData())
		}
	}
	want := map[string]string{
		`terraform_data.disk["home"]`: `REPLACE ["triggers_replace"] true`,
		"terraform_data.guarded":      `REPLACE ["triggers_replace"] true`,
		"terraform_data.kept":         `NO_OP [] true`,
		"terraform_data.label":        `UPDATE ["input" "output"] true`,
		"terraform_data.machine[0]":   `REPLACE ["triggers_replace"] true`, // every start gives the agent another token
		"terraform_data.new":          `CREATE [] false`,
		"terraform_data.old":          `DELETE [] true`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if string(state) != before || len(result.GetTemplateDryRun().GetResources()) > 0 {
		t.Error("the plan changed the state, or lists resources as a dry run from nothing does")
	}
	if n := len(j.sink.checkpoints); n > 0 {
		t.Errorf("the plan reported %d states", n)
	}
	for name, text := range map[string]string{"result": result.String(), "log": j.sink.text()} {
		for _, secret := range []string{secretOne, secretTwo, "PRIVATE-KEY-SECRET", "SESSION-TOKEN-SECRET"} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has %s:\n%s", name, secret, text)
			}
		}
	}

	// The state still fits: a start with the first version and the same values replaces only what depends on the token.
	again, j := planned(t, s, first, secretOne, state, zone("fra1"))
	changes := again.GetTemplateDryRun().GetPlan().GetChanges()
	if again.GetError() != "" || len(changes) == 0 || slices.ContainsFunc(changes, func(c *provisionerpb.PlannedChange) bool {
		return c.GetAction() != provisionerpb.PlannedChange_ACTION_NO_OP && c.GetName() != "machine"
	}) {
		t.Errorf("the same again: %v\n%s", again, j.sink.text())
	}
}

// TestPlanOfEmptyState checks that the plan of a workspace whose state is empty creates everything, and that a plan that
// fails has no changes.
func TestPlanOfEmptyState(t *testing.T) {
	t.Parallel()
	s := newStarts(t)
	source := strings.Replace(changing, "VERSION", "one", 1)
	result, j := planned(t, s, source, secretOne, nil, nil)
	changes := result.GetTemplateDryRun().GetPlan().GetChanges()
	if result.GetError() != "" || len(changes) == 0 || slices.ContainsFunc(changes, func(c *provisionerpb.PlannedChange) bool {
		return c.GetAction() != provisionerpb.PlannedChange_ACTION_CREATE || c.GetHoldsData()
	}) {
		t.Errorf("from an empty state: %v\n%s", result, j.sink.text())
	}
	result, _ = planned(t, s, source, secretOne, []byte("nonsense"), nil)
	if result.GetError() == "" || len(result.GetTemplateDryRun().GetPlan().GetChanges()) > 0 {
		t.Errorf("from a broken state: %v", result)
	}
}
