package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// CheckVariables returns a fault that names the variables without a value.
func CheckVariables(t *template.Source, values []*provisionerpb.VariableValue) error {
	missing := t.MissingVariables(values)
	if len(missing) == 0 {
		return nil
	}
	return &Error{Code: codeVariables, Err: fault.New(fault.Invalid,
		"%s: the template needs a value for its variable %s: give it with --variable %s=<value>",
		t.VariablePlace(missing[0]), strings.Join(missing, ", "), missing[0])}
}

// CheckParameters returns a fault that names the parameters without a value.
func CheckParameters(t *template.Source, values []*provisionerpb.ParameterValue) error {
	missing := t.MissingParameters(values)
	if len(missing) == 0 {
		return nil
	}
	return &Error{Code: CodeParameters, Err: fault.New(fault.Invalid,
		"%s: the parameter %s has no value and no default: give it with --parameter %s=<value>",
		t.ParameterPlace(missing[0]), strings.Join(missing, ", "), missing[0])}
}

// Declared is what a template's data sources declare.
type Declared struct {
	parameters map[string]*provisionerpb.Parameter // by the address of the data source
	presets    []*provisionerpb.Preset
	presetsAt  []string // their addresses
	auths      []*provisionerpb.ExternalAuth
}

type authAttributes struct {
	ID       string `json:"id"`
	Optional bool   `json:"optional"`
}

// ReadDeclared reads data sources of the coder provider in a template, which may be nil.
func ReadDeclared(t *template.Source, data []Node) (Declared, error) {
	d := Declared{parameters: map[string]*provisionerpb.Parameter{}}
	for i := range data {
		n := &data[i]
		var err error
		switch n.typ {
		case "coder_parameter":
			var p *provisionerpb.Parameter
			if p, err = readParameter(n); err == nil {
				d.parameters[n.dataAddress()+"["+indexText(n.index)+"]"] = p
			}
		case "coder_workspace_preset":
			d.presetsAt, err = append(d.presetsAt, n.dataAddress()), d.addPreset(n)
		case "coder_external_auth":
			var a authAttributes
			err = json.Unmarshal(n.attrs, &a)
			d.auths = append(d.auths, &provisionerpb.ExternalAuth{Id: a.ID, Optional: a.Optional})
		}
		if err != nil {
			return Declared{}, fmt.Errorf("%s: read %s: %w", t.Place(n.dataAddress()), n.dataAddress(), err)
		}
	}
	return d, nil
}

type presetAttributes struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Icon        string            `json:"icon"`
	Default     bool              `json:"default"`
	Parameters  map[string]string `json:"parameters"`
	Prebuilds   []struct {
		Instances        int32 `json:"instances"`
		ExpirationPolicy []struct {
			TTL int64 `json:"ttl"`
		} `json:"expiration_policy"`
		Scheduling []struct {
			Timezone string `json:"timezone"`
			Schedule []struct {
				Cron      string `json:"cron"`
				Instances int32  `json:"instances"`
			} `json:"schedule"`
		} `json:"scheduling"`
	} `json:"prebuilds"`
}

// maxPrebuilds bounds how many workspaces a preset may keep ready: more is a mistake in the template.
const maxPrebuilds = 1000

func (d *Declared) addPreset(n *Node) error {
	var p presetAttributes
	if err := json.Unmarshal(n.attrs, &p); err != nil {
		return err
	}
	preset := &provisionerpb.Preset{Name: p.Name, Description: p.Description, Icon: p.Icon, Default: p.Default}
	for name, value := range p.Parameters {
		preset.Parameters = append(preset.Parameters, &provisionerpb.ParameterValue{Name: name, Value: value})
	}
	slices.SortFunc(preset.Parameters,
		func(a, b *provisionerpb.ParameterValue) int { return strings.Compare(a.Name, b.Name) })
	for _, b := range p.Prebuilds { // at most one
		preset.Prebuilds = &provisionerpb.Prebuilds{Instances: b.Instances}
		most := b.Instances
		for _, e := range b.ExpirationPolicy {
			preset.Prebuilds.TtlSeconds = e.TTL
		}
		for _, plan := range b.Scheduling {
			preset.Prebuilds.Timezone = plan.Timezone
			for _, s := range plan.Schedule {
				preset.Prebuilds.Schedule = append(preset.Prebuilds.Schedule,
					&provisionerpb.PrebuildSchedule{Cron: s.Cron, Instances: max(s.Instances, 0)})
				most = max(most, s.Instances)
			}
		}
		if most > maxPrebuilds {
			return fault.New(fault.Invalid,
				"the preset %q asks for %d prebuilt workspaces: set instances to %d at most", p.Name, most,
				maxPrebuilds)
		}
	}
	d.presets = append(d.presets, preset)
	return nil
}

// Parameters returns the parameters in the order in which users see them.
func (d *Declared) Parameters() []*provisionerpb.Parameter {
	var all []*provisionerpb.Parameter
	for _, p := range d.parameters {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *provisionerpb.Parameter) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// rules is a validation block. Numbers come as JSON numbers, or as text when a template computes them.
type rules struct {
	Min         any    `json:"min"`
	MinDisabled bool   `json:"min_disabled"`
	Max         any    `json:"max"`
	MaxDisabled bool   `json:"max_disabled"`
	Monotonic   string `json:"monotonic"`
	Regex       string `json:"regex"`
	Error       string `json:"error"`
}

func (r rules) message() *provisionerpb.ParameterValidation {
	v := &provisionerpb.ParameterValidation{Regex: r.Regex, Error: r.Error, Monotonic: r.Monotonic}
	if n, ok := wholeNumber(r.Min); ok && !r.MinDisabled {
		v.Min = &n
	}
	if n, ok := wholeNumber(r.Max); ok && !r.MaxDisabled {
		v.Max = &n
	}
	return v
}

func wholeNumber(v any) (int64, bool) {
	switch v := v.(type) {
	case float64:
		return int64(v), true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	default:
		return 0, false
	}
}

type parameterAttributes struct {
	Name        string `json:"name"`
	DisplayName string `json:"display_name"`
	Description string `json:"description"`
	Type        string `json:"type"`
	FormType    string `json:"form_type"`
	Styling     string `json:"styling"`
	Mutable     bool   `json:"mutable"`
	Ephemeral   bool   `json:"ephemeral"`
	Optional    bool   `json:"optional"`
	Default     string `json:"default"`
	Icon        string `json:"icon"`
	Order       int32  `json:"order"`
	Option      []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Value       string `json:"value"`
		Icon        string `json:"icon"`
	} `json:"option"`
	Validation []rules `json:"validation"`
}

func readParameter(n *Node) (*provisionerpb.Parameter, error) {
	var attrs parameterAttributes
	if err := json.Unmarshal(n.attrs, &attrs); err != nil {
		return nil, err
	}
	p := &provisionerpb.Parameter{
		Name: attrs.Name, DisplayName: attrs.DisplayName, Description: attrs.Description, Type: attrs.Type,
		FormType: attrs.FormType, Styling: attrs.Styling, Mutable: attrs.Mutable, Ephemeral: attrs.Ephemeral,
		Required: !attrs.Optional, DefaultValue: attrs.Default, Icon: attrs.Icon, Order: attrs.Order,
	}
	for _, o := range attrs.Option {
		p.Options = append(p.Options, &provisionerpb.ParameterOption{Name: o.Name, Description: o.Description,
			Value: o.Value, Icon: o.Icon})
	}
	if len(attrs.Validation) > 0 {
		p.Validation = attrs.Validation[0].message()
	}
	return p, nil
}

// AddLifted restores the validation rules that a projection turned into outputs.
func (d *Declared) AddLifted(outputs map[string]StateOutput) error {
	for name, out := range outputs {
		label, ok := strings.CutPrefix(name, template.ValidationOutput)
		if !ok {
			continue
		}
		var r rules
		if err := json.Unmarshal(out.Value, &r); err != nil {
			return fmt.Errorf("read validation of %s: %w", label, err)
		}
		for address, p := range d.parameters {
			if strings.HasPrefix(address, "data.coder_parameter."+label+"[") {
				p.Validation = r.message()
			}
		}
	}
	return nil
}

// Placeholder returns a value for a required parameter at import, when there is no user to give one.
func Placeholder(p *provisionerpb.Parameter) string {
	switch {
	case p.GetType() == "list(string)":
		return "[]"
	case len(p.GetOptions()) > 0:
		return p.GetOptions()[0].GetValue()
	case p.GetType() == "bool":
		return "false"
	case p.GetType() == "number":
		v := p.GetValidation()
		switch {
		case v.GetMin() > 0:
			return strconv.FormatInt(v.GetMin(), 10)
		case v != nil && v.Max != nil && v.GetMax() < 1:
			return strconv.FormatInt(v.GetMax(), 10)
		}
		return "1"
	default:
		return "example"
	}
}

// MergeDeclared fills in what the projection found, and takes from the plan's data sources what the projection could
// not see: those in modules, and those that depend on other providers. It returns the addresses of the presets.
func MergeDeclared(
	t *template.Source, found *provisionerpb.ImportResult, projected Declared, data []Node,
) (presets []string, err error) {
	planned, err := ReadDeclared(t, data)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	all := Declared{parameters: maps.Clone(projected.parameters)}
	if all.parameters == nil {
		all.parameters = map[string]*provisionerpb.Parameter{}
	}
	for address, p := range planned.parameters {
		if all.parameters[address] == nil {
			all.parameters[address] = p
		}
	}
	for _, address := range slices.Sorted(maps.Keys(all.parameters)) {
		name := all.parameters[address].GetName()
		if other, taken := names[name]; taken {
			return nil, &Error{Code: CodeParameters, Err: fmt.Errorf("%s: two parameters are named %q: %s (%s) and %s",
				t.Place(stripIndexes(address)), name,
				strings.TrimSuffix(other, "[]"), t.Place(stripIndexes(other)), strings.TrimSuffix(address, "[]"))}
		}
		names[name] = address
	}
	found.Parameters = all.Parameters()
	// The plan sees all presets and external logins that the projection sees.
	found.Presets = planned.presets
	for _, auth := range planned.auths {
		i := slices.IndexFunc(found.ExternalAuth, func(a *provisionerpb.ExternalAuth) bool { return a.Id == auth.Id })
		if i < 0 {
			found.ExternalAuth = append(found.ExternalAuth, auth)
			continue
		}
		found.ExternalAuth[i].Optional = found.ExternalAuth[i].Optional && auth.Optional
	}
	return planned.presetsAt, nil
}

// Refused returns, by parameter, why Terraform refused given values.
func Refused(diags []Diagnostic, t *template.Source, given []*provisionerpb.ParameterValue) map[string]string {
	refused := map[string]string{}
	for _, d := range diags {
		name, ok := parameterOf(d, t)
		if !ok ||
			!slices.ContainsFunc(given, func(v *provisionerpb.ParameterValue) bool { return v.GetName() == name }) {
			continue
		}
		reason := strings.TrimSpace(strings.TrimPrefix(d.Detail, "Error: "))
		if reason == "" {
			reason = d.Summary
		}
		refused[name] = printable.Line(reason)
	}
	return refused
}

// ParameterValues returns the values of the parameters among data sources, by name.
func ParameterValues(data []Node) (map[string]string, error) {
	values := map[string]string{}
	for i := range data {
		if data[i].typ != "coder_parameter" {
			continue
		}
		var attrs struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		}
		if err := json.Unmarshal(data[i].attrs, &attrs); err != nil {
			return nil, fmt.Errorf("read value of parameter: %w", err)
		}
		values[attrs.Name] = attrs.Value
	}
	return values, nil
}
