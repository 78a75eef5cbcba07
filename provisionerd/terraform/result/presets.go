package result

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coder/terraform-provider-coder/v2/provider"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// CheckPresetNames returns a fault if two presets have one name, or if two are the default. addresses are those of the
// presets.
func CheckPresetNames(t *template.Source, presets []*provisionerpb.Preset, addresses []string) error {
	names, main := map[string]string{}, ""
	for i, preset := range presets {
		place := t.Place(addresses[i])
		if other, taken := names[preset.GetName()]; taken {
			return fault.New(fault.Invalid, "%s: the preset %q has the name of the one at %s", place, preset.GetName(),
				other)
		}
		names[preset.GetName()] = place
		if preset.GetDefault() && main != "" {
			return fault.New(fault.Invalid,
				"%s: the preset %q is a second default beside the one at %s: only one can have default = true", place,
				preset.GetName(), main)
		}
		if preset.GetDefault() {
			main = place
		}
	}
	return nil
}

// PresetProblem returns what is wrong with the values of a preset, or "", and whether the cause is a parameter that is
// not known.
func PresetProblem(
	preset *provisionerpb.Preset, parameters []*provisionerpb.Parameter, t *template.Source,
) (problem string, unknown bool) {
	for _, v := range preset.GetParameters() {
		i := slices.IndexFunc(parameters, func(p *provisionerpb.Parameter) bool { return p.GetName() == v.GetName() })
		if i < 0 && slices.Contains(slices.Collect(maps.Values(t.Parameters)), v.GetName()) {
			continue // exists with other values only
		}
		if i < 0 {
			return fmt.Sprintf("sets the parameter %q, which the template does not have", v.GetName()), true
		}
		if reason := refusal(parameters[i], v.GetValue()); reason != "" {
			return fmt.Sprintf("gives the parameter %q the value %q: %s", v.GetName(), v.GetValue(), reason), false
		}
	}
	return "", false
}

// refusal returns why the coder provider refuses a value of a parameter, or "".
func refusal(p *provisionerpb.Parameter, value string) string {
	of := provider.Parameter{Name: p.GetName(), Type: provider.OptionType(p.GetType()),
		FormType: provider.ParameterFormType(p.GetFormType())}
	for _, o := range p.GetOptions() {
		of.Option = append(of.Option, provider.Option{Name: o.GetName(), Value: o.GetValue()})
	}
	if v := p.GetValidation(); v != nil {
		of.Validation = []provider.Validation{{
			Min: int(v.GetMin()), MinDisabled: v.Min == nil, Max: int(v.GetMax()), MaxDisabled: v.Max == nil,
			Monotonic: v.GetMonotonic(), Regex: v.GetRegex(), Error: v.GetError(),
		}}
	}
	_, diags := of.ValidateInput(&value, nil)
	if len(diags) == 0 {
		return ""
	}
	return cmp.Or(diags[0].Detail, diags[0].Summary)
}

// HidesParameters reports whether modules declare parameters that the plan does not have.
func (p *Plan) HidesParameters() bool {
	seen := map[string]bool{}
	for _, n := range p.Data {
		seen[n.dataAddress()] = true
	}
	for address := range p.config.declared {
		if strings.HasPrefix(address, "module.") && strings.Contains(address, ".data.coder_parameter.") &&
			!seen[address] {
			return true
		}
	}
	return false
}

// PrebuildWarnings returns warnings of workspaces that cannot be prepared.
func PrebuildWarnings(
	place string, preset *provisionerpb.Preset, parameters []*provisionerpb.Parameter,
) (lines []string) {
	if preset.GetPrebuilds() == nil {
		return nil
	}
	for _, p := range parameters {
		if p.GetRequired() && !slices.ContainsFunc(preset.GetParameters(),
			func(v *provisionerpb.ParameterValue) bool { return v.GetName() == p.GetName() }) {
			lines = append(lines,
				fmt.Sprintf("%s: the preset %q has no value for the parameter %q, which is required: its prebuilt "+
					"workspaces cannot be built", place, preset.GetName(), p.GetName()))
		}
	}
	return lines
}
