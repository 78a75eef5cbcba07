package terraform

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coder/terraform-provider-coder/v2/provider"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// checkPresets returns a fault if two presets have one name or are the default, or if a preset names a parameter that does not exist, or a
// value that the parameter refuses. p is the plan of a start.
func (r *runner) checkPresets(ctx context.Context, in planInput, p planned, found *provisionerpb.ImportResult, addresses []string) error {
	names, main := map[string]string{}, ""
	for i, preset := range found.GetPresets() {
		place := in.t.Place(addresses[i])
		if other, taken := names[preset.GetName()]; taken {
			return fault.New(fault.Invalid, "%s: the preset %q has the name of the one at %s", place, preset.GetName(), other)
		}
		names[preset.GetName()] = place
		if preset.GetDefault() && main != "" {
			return fault.New(fault.Invalid, "%s: the preset %q is a second default beside the one at %s: only one can have default = true", place, preset.GetName(), main)
		}
		if preset.GetDefault() {
			main = place
		}
	}
	for i, preset := range found.GetPresets() {
		place := in.t.Place(addresses[i])
		problem := presetProblem(preset, found.GetParameters(), in.t)
		if problem != "" {
			// Parameters may depend on each other: with the preset's values they may be others.
			if there, err := r.parametersWith(ctx, in, preset); err == nil {
				problem = presetProblem(preset, there, in.t)
			}
			if ctx.Err() != nil {
				return errCanceled
			}
		}
		switch {
		case problem == "":
		case strings.HasPrefix(problem, noParameter) && p.config.hidesParameters(p.data):
			r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s: the preset %q %s now", place, preset.GetName(), problem)
		default:
			return fault.New(fault.Invalid, "%s: the preset %q %s", place, preset.GetName(), problem)
		}
		r.warnPrebuilds(place, preset, found.GetParameters())
	}
	return nil
}

// noParameter begins the problem of a preset that names an unknown parameter.
const noParameter = "sets the parameter "

// presetProblem returns what is wrong with the values of a preset, or "".
func presetProblem(preset *provisionerpb.Preset, parameters []*provisionerpb.Parameter, t *template.Source) string {
	for _, v := range preset.GetParameters() {
		i := slices.IndexFunc(parameters, func(p *provisionerpb.Parameter) bool { return p.GetName() == v.GetName() })
		if i < 0 && slices.Contains(slices.Collect(maps.Values(t.Parameters)), v.GetName()) {
			continue // exists with other values only
		}
		if i < 0 {
			return fmt.Sprintf("%s%q, which the template does not have", noParameter, v.GetName())
		}
		if reason := refusal(parameters[i], v.GetValue()); reason != "" {
			return fmt.Sprintf("gives the parameter %q the value %q: %s", v.GetName(), v.GetValue(), reason)
		}
	}
	return ""
}

// refusal returns why the coder provider refuses a value of a parameter, or "".
func refusal(p *provisionerpb.Parameter, value string) string {
	of := provider.Parameter{Name: p.GetName(), Type: provider.OptionType(p.GetType()), FormType: provider.ParameterFormType(p.GetFormType())}
	for _, o := range p.GetOptions() {
		of.Option = append(of.Option, provider.Option{Name: o.GetName(), Value: o.GetValue()})
	}
	if v := p.GetValidation(); v != nil {
		of.Validation = []provider.Validation{{
			Min: int(v.GetMin()), MinDisabled: v.Min == nil, Max: int(v.GetMax()), MaxDisabled: v.Max == nil, Monotonic: v.GetMonotonic(), Regex: v.GetRegex(), Error: v.GetError(),
		}}
	}
	_, diags := of.ValidateInput(&value, nil)
	if len(diags) == 0 {
		return ""
	}
	return cmp.Or(diags[0].Detail, diags[0].Summary)
}

// parametersWith returns the parameters that the template has with the values of a preset.
func (r *runner) parametersWith(ctx context.Context, in planInput, preset *provisionerpb.Preset) ([]*provisionerpb.Parameter, error) {
	in.facts.parameters = slices.Clone(in.facts.parameters)
	for _, v := range preset.GetParameters() {
		in.facts.parameters = slices.DeleteFunc(in.facts.parameters, func(old *provisionerpb.ParameterValue) bool { return old.GetName() == v.GetName() })
		in.facts.parameters = append(in.facts.parameters, v)
	}
	found, err := r.project(ctx, in)
	return found.sorted(), err
}

// hidesParameters reports whether modules declare parameters that this plan does not have.
func (c *configuration) hidesParameters(data []node) bool {
	seen := map[string]bool{}
	for _, n := range data {
		seen[n.dataAddress()] = true
	}
	for address := range c.declared {
		if strings.HasPrefix(address, "module.") && strings.Contains(address, ".data.coder_parameter.") && !seen[address] {
			return true
		}
	}
	return false
}

// warnPrebuilds warns of workspaces that cannot be prepared.
func (r *runner) warnPrebuilds(place string, preset *provisionerpb.Preset, parameters []*provisionerpb.Parameter) {
	if preset.GetPrebuilds() == nil {
		return
	}
	for _, p := range parameters {
		if p.GetRequired() && !slices.ContainsFunc(preset.GetParameters(), func(v *provisionerpb.ParameterValue) bool { return v.GetName() == p.GetName() }) {
			r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s: the preset %q has no value for the parameter %q, which is required: its prebuilt workspaces cannot be built", place, preset.GetName(), p.GetName())
		}
	}
}
