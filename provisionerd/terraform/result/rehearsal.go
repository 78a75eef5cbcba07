package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
	tfjson "github.com/hashicorp/terraform-json"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// waits is why only the build of a claim can tell what becomes of a workspace: sentences that begin with places in the
// template.
type waits []string

func (w waits) Error() string { return strings.Join(w, "\n") }

const (
	maxWaits     = 10      // more reasons help no author
	maxClaimPlan = 1 << 20 // bytes that the server keeps of a plan
)

// ClaimWaits returns the reasons in an error of a rehearsal, as text for a log, at most maxWaits of them.
func ClaimWaits(err error) []string {
	reasons, ok := errors.AsType[waits](err)
	if !ok {
		reasons = waits{err.Error()}
	}
	reasons = reasons[:min(len(reasons), maxWaits)]
	for i, reason := range reasons {
		reasons[i] = tty.Clean(reason)
	}
	return reasons
}

// Rehearsal judges the plan of a claim for an owner who does not exist.
type Rehearsal struct {
	Template   *template.Source
	Resources  *template.Resources
	OwnerFacts map[provisionerpb.OwnerFact]string
	Plan       *tfjson.Plan
	variables  []ownerVariable
}

// ownerVariable is a variable that depends on the owner.
type ownerVariable struct {
	agent, name, value string // the agent's id, and the value for the rehearsal's owner
	text               *provisionerpb.OwnerText
}

// ClaimPlan returns what the server needs for a claim, or why it cannot know that. s is the state before the claim.
func (p *Rehearsal) ClaimPlan(s *State, secret string, owner uuid.UUID) (*provisionerpb.ClaimPlan, error) {
	if len(p.Plan.DeferredChanges) > 0 || len(p.Plan.ActionInvocations) > 0 {
		return nil, errors.New("the plan of a claim is not complete")
	}
	var reasons waits
	if p.Plan.PriorState != nil && p.Plan.PriorState.Values != nil {
		found, err := p.judgeData(p.Plan.PriorState.Values.RootModule)
		if err != nil {
			return nil, err
		}
		reasons = found
	}
	if p.Plan.Config != nil {
		if at := p.counts(p.Plan.Config.RootModule, nil, ""); at != "" {
			reasons = append(reasons, fmt.Sprintf("%s: how many %s there are may depend on the owner",
				p.Template.Place(at), at))
		}
	}
	attrs := s.instances()
	for _, c := range p.Plan.ResourceChanges {
		for _, err := range p.judge(c, attrs) {
			reasons = append(reasons, fmt.Sprintf("%s: %v", p.Template.Place(stripIndexes(c.Address)), err))
		}
	}
	if len(reasons) > 0 {
		return nil, reasons
	}
	nodes := s.nodesWith(attrs)
	resources, err := DeriveResources(p.Template, nodes)
	if err != nil {
		return nil, err
	}
	plan := &provisionerpb.ClaimPlan{Resources: resources}
	if err := p.take(plan); err != nil {
		return nil, err
	}
	text, err := proto.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("encode plan of a claim: %w", err)
	}
	if lower := bytes.ToLower(text); bytes.Contains(lower, []byte(secret)) ||
		bytes.Contains(lower, []byte(owner.String())) {
		return nil, errors.New("the owner's name reaches its agents in a way that cannot be followed")
	}
	if len(text) > maxClaimPlan {
		return nil, errors.New("its agents need too much data")
	}
	return plan, nil
}

// judgeData lists data sources that may depend on the owner: marks do not cross a provider.
func (p *Rehearsal) judgeData(module *tfjson.StateModule) (found waits, err error) {
	if module == nil {
		return nil, nil
	}
	for _, r := range module.Resources {
		if r.Mode != tfjson.DataResourceMode ||
			slices.Contains([]string{"coder_workspace", "coder_workspace_owner", "coder_external_auth"}, r.Type) {
			continue
		}
		var marks any
		if len(r.SensitiveValues) > 0 {
			if err := json.Unmarshal(r.SensitiveValues, &marks); err != nil {
				return nil, fmt.Errorf("read plan of a claim: %w", err)
			}
		}
		if r.Type == "external" || holds(marks) {
			found = append(found, fmt.Sprintf("%s: %s may depend on the owner",
				p.Template.Place(stripIndexes(r.Address)), r.Address))
		}
	}
	for _, child := range module.ChildModules {
		more, err := p.judgeData(child)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// judge returns what of a change is more than the owner's data, and puts the attributes after the change into attrs.
func (p *Rehearsal) judge(c *tfjson.ResourceChange, attrs map[string]json.RawMessage) []error {
	if c.Mode != tfjson.ManagedResourceMode || c.Change == nil || c.DeposedKey != "" {
		return []error{fmt.Errorf("a claim changes or reads %s", c.Address)}
	}
	change := c.Change
	same := reflect.DeepEqual(change.Before, change.After) && !holds(change.AfterUnknown)
	kept := change.Actions.NoOp() || change.Actions.Update() && same // perhaps only Terraform's marks differ
	if !strings.HasPrefix(c.Type, "coder_") {
		if !kept {
			return []error{fmt.Errorf("a claim %s %s%s", actionOf(change.Actions), c.Address, differences(change))}
		}
		return p.judgeMarks(c)
	}
	after, ok := change.After.(map[string]any)
	switch {
	case !kept && !change.Actions.Update(), !ok:
		return []error{fmt.Errorf("a claim %s %s%s", actionOf(change.Actions), c.Address, differences(change))}
	case holds(change.AfterUnknown):
		return []error{fmt.Errorf("a claim changes %s in a way that only its build can tell%s", c.Address,
			differences(change))}
	}
	var refused []error
	marks, _ := change.AfterSensitive.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		if !holds(marks[name]) {
			continue
		}
		refused = append(refused, p.depends(c, name, marks[name], after)...)
	}
	text, err := json.Marshal(after)
	if err != nil {
		refused = append(refused, fmt.Errorf("read plan of a claim: %w", err))
	}
	attrs[c.Address] = text
	return refused
}

// judgeMarks returns what depends on the owner of a resource of another provider, although a claim by the rehearsal's
// owner leaves it as it is.
func (p *Rehearsal) judgeMarks(c *tfjson.ResourceChange) (refused []error) {
	for _, path := range marked(c.Change.AfterSensitive, c.Change.BeforeSensitive, nil) {
		if !p.Resources.Ignores(stripIndexes(c.Address), path) {
			refused = append(refused, fmt.Errorf("%s of %s depends on the owner", pathText(path), c.Address))
		}
	}
	return refused
}

func actionOf(a tfjson.Actions) string {
	switch {
	case a.Replace():
		return "replaces"
	case a.Create():
		return "makes"
	case a.Delete():
		return "removes"
	}
	return "changes"
}

// depends handles an attribute that depends on the owner: it notes a variable, and removes from after what is only
// shown. It returns what cannot be followed.
func (p *Rehearsal) depends(c *tfjson.ResourceChange, name string, marks any, after map[string]any) (refused []error) {
	address := stripIndexes(c.Address)
	refuse := func(what string, reason error) {
		refused = append(refused, fmt.Errorf("%s of %s depends on the owner: %w", what, c.Address, reason))
	}
	switch {
	case c.Type == "coder_metadata":
		delete(after, name) // the build reports it
	case c.Type == "coder_env" && name == "value":
		agent, _ := after["agent_id"].(string)
		variable, _ := after["name"].(string)
		if err := p.variable(agent, variable, after[name], address, name, ""); err != nil {
			refuse(name, err)
		}
	case c.Type == "coder_agent" && name == "env":
		each, ok := marks.(map[string]any)
		env, is := after[name].(map[string]any)
		id, _ := after["id"].(string)
		if !ok || !is {
			refuse(name, errors.New("its expression is no object with a value for each name"))
			break
		}
		for _, key := range slices.Sorted(maps.Keys(each)) {
			if !holds(each[key]) {
				continue
			}
			if err := p.variable(id, key, env[key], address, name, key); err != nil {
				refuse(pathText([]string{name, key}), err)
			}
		}
	default:
		refuse(name, errors.New("only variables of agents may, and what coder_metadata shows"))
	}
	return refused
}

// variable notes a variable whose expression gives the planned value.
func (p *Rehearsal) variable(agent, name string, planned any, address, attribute, key string) error {
	value, ok := planned.(string)
	if !ok {
		return errors.New("it is not a text")
	}
	text, err := p.Resources.OwnerText(address, attribute, key)
	if err != nil {
		return err
	}
	if got, ok := text.Value(p.OwnerFacts); !ok || got != value {
		return errors.New("its expression gives another value than the plan")
	}
	p.variables = append(p.variables, ownerVariable{agent, name, value, text})
	return nil
}

// take removes from a plan's agents their tokens and the variables that depend on the owner, and adds how those are
// computed.
func (p *Rehearsal) take(plan *provisionerpb.ClaimPlan) error {
	agents := map[string]*provisionerpb.Agent{}
	for _, r := range plan.GetResources() {
		for _, a := range r.GetAgents() {
			if len(a.GetDevcontainers()) > 0 {
				return fmt.Errorf("the agent %s has dev containers, which it starts again for the owner", a.GetName())
			}
			a.Token = ""
			agents[printable.UUID(a.GetId())] = a
		}
	}
	if len(agents) == 0 {
		return errors.New("it has no agents")
	}
	for _, v := range p.variables {
		a := agents[v.agent]
		if a == nil {
			return fmt.Errorf("the variable %s belongs to no agent", v.name)
		}
		if a.GetEnv()[v.name] != v.value {
			return fmt.Errorf("the variable %s of the agent %s has several parts", v.name, a.GetName())
		}
		plan.Variables = append(plan.Variables, &provisionerpb.OwnerVariable{AgentId: a.GetId(), Name: v.name,
			Value: v.text})
	}
	for _, v := range plan.GetVariables() {
		delete(agents[printable.UUID(v.GetAgentId())].GetEnv(), v.GetName())
	}
	return nil
}

// counts returns the address of something in a module whose number may depend on the owner, or "". passed has the
// module's variables that may; prefix is its address and a dot, or "" for the root module.
func (p *Rehearsal) counts(m *tfjson.ConfigModule, passed map[string]bool, prefix string) string {
	if m == nil {
		return ""
	}
	of := func(e *tfjson.Expression) []string {
		if e == nil || e.ExpressionData == nil {
			return nil
		}
		return e.References
	}
	owned := func(e *tfjson.Expression) bool {
		return slices.ContainsFunc(of(e), func(ref string) bool { return p.owned(ref, passed, prefix == "") })
	}
	for _, r := range m.Resources {
		if owned(r.CountExpression) {
			return prefix + r.Address
		}
	}
	for name, call := range m.ModuleCalls {
		if owned(call.CountExpression) {
			return prefix + "module." + name
		}
		inner := map[string]bool{}
		for variable, e := range call.Expressions {
			inner[variable] = owned(e)
		}
		if at := p.counts(call.Module, inner, prefix+"module."+name+"."); at != "" {
			return at
		}
	}
	return ""
}

// owned reports whether a reference in a module may lead to the owner. What cannot be followed, may.
func (p *Rehearsal) owned(ref string, passed map[string]bool, root bool) bool {
	parts := strings.Split(ref, ".")
	switch {
	case parts[0] == "local" && len(parts) > 1:
		return !root || p.Resources.NamesOwner(parts[1])
	case parts[0] == "var" && len(parts) > 1:
		return passed[parts[1]]
	case parts[0] == "module":
		return true
	}
	return template.IsOwner(parts)
}
