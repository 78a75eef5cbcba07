// Package form fills in a template's form: it takes values from flags, files, presets, other workspaces and questions,
// and checks them before a build is ordered. It knows neither the mesh nor the global flags.
package form

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// parameter is a parameter as the form shows it for the answers so far.
type parameter struct {
	sdk.TemplateVersionParameter
	refused string // why the server refuses the current answer; "" if it does not
	masked  bool   // the value must not be shown
}

// Query collects what decides the parameters of a build.
type Query struct {
	// Form asks the server for the parameters for the answers so far, in order. Whether a parameter exists, its options
	// and its default may depend on other answers.
	Form     func(answers map[string]string) ([]parameter, error)
	Values   map[string]string // given by the user; every name must be a parameter
	Copied   map[string]string // from another workspace; unknown names are ignored
	Preset   map[string]string // from a preset
	Defaults map[string]string // given by the user, replacing the template's
	Previous map[string]string // of the previous build; nil if there is none
	Hidden   map[string]bool   // of the previous build, whose values only the workspace's owner may read
	// Always also asks for parameters that have a value: of the previous build, a preset or another workspace.
	Always bool
	// Ephemeral also asks for parameters for this build only.
	Ephemeral bool
	// UseDefaults does not ask for parameters with a default.
	UseDefaults bool
	// Ask asks a question. If nil, a parameter without a value is an error that names the flag.
	Ask func(tty.Question) (string, error)
}

// decision is the value of one parameter. If found is false, the server decides.
type decision struct {
	value        string
	found, asked bool
}

// Resolve decides each parameter's value. It omits values that the server already knows (unchanged ones and the
// template's defaults) unless they were given. After an answer that differs from what the form assumed, it asks the
// server for the form again.
func (q Query) Resolve() ([]sdk.ParameterValue, error) {
	answers := map[string]string{}
	for _, known := range []map[string]string{q.Defaults, q.Previous, q.Preset, q.Copied, q.Values} {
		maps.Copy(answers, known)
	}
	decided := map[string]decision{}
	for {
		form, err := q.Form(answers)
		if err != nil {
			return nil, err
		}
		changed := false
		for _, def := range form {
			d, ok := decided[def.Name]
			if ok && d.asked && checkParameter(def.TemplateVersionParameter, d.value) == nil {
				continue
			}
			if d, err = q.one(def); err != nil {
				// An unknown name may be the cause of this error.
				return nil, cmp.Or(q.checkNames(form), err)
			}
			decided[def.Name] = d
			if before, known := answers[def.Name]; d.asked && d.value != before &&
				(known || d.value != def.DefaultValue) {
				answers[def.Name], changed = d.value, true
				break
			}
		}
		if changed {
			continue
		}
		if err := q.checkNames(form); err != nil {
			return nil, err
		}
		var out []sdk.ParameterValue
		for _, def := range form {
			if d := decided[def.Name]; d.found {
				out = append(out, sdk.ParameterValue{Name: def.Name, Value: d.value})
			}
		}
		return out, nil
	}
}

// checkNames rejects values for parameters that the template does not have.
func (q Query) checkNames(form []parameter) error {
	var known []string
	for _, def := range form {
		known = append(known, def.Name)
	}
	for _, given := range []map[string]string{q.Values, q.Defaults} {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if slices.Contains(known, name) {
				continue
			}
			list := "it has none"
			if len(known) > 0 {
				list = "it has " + strings.Join(known, ", ")
			}
			return fault.New(fault.Invalid, "the template has no parameter %q: %s", name, list).
				WithField(name, "not a parameter of this template")
		}
	}
	return nil
}

// one decides the value of one parameter.
func (q Query) one(def parameter) (decision, error) {
	previous, existed := q.Previous[def.Name]
	if value, ok := q.Values[def.Name]; ok {
		// A value that the template no longer allows can be replaced, even if it could not be changed.
		if existed && !def.Mutable && !def.Ephemeral && previous != value &&
			checkParameter(def.TemplateVersionParameter, previous) == nil {
			return decision{}, fault.New(fault.Invalid, "the parameter %q cannot be changed after the workspace is created", def.Name).
				WithField(def.Name, "is immutable")
		}
		return decision{value: value, found: true}, def.check(value)
	}
	given, offered := q.Copied[def.Name]
	if !offered {
		given, offered = q.Preset[def.Name]
	}
	if offered && !(q.Always && q.Ask != nil && !q.UseDefaults) {
		return decision{value: given, found: true}, def.check(given)
	}
	if q.Hidden[def.Name] {
		return decision{}, nil // the server keeps the value
	}
	if def.Ephemeral {
		if !(q.Ephemeral && q.Ask != nil) && !offered && !(def.Required && q.Previous == nil) {
			return decision{}, nil
		}
		existed = false // what the previous build had does not stay
	}
	lost := existed && def.refused != "" // the previous value is no longer valid
	if existed && !lost && !(q.Always && def.Mutable) {
		return decision{}, nil
	}
	initial, has := def.DefaultValue, !def.Required
	if own, ok := q.Defaults[def.Name]; ok {
		initial, has = own, true
	}
	if existed && !lost {
		initial, has = previous, true
	}
	if offered {
		initial, has = given, true
	}
	if q.Ask != nil && !(q.UseDefaults && has && !lost) {
		value, err := q.Ask(def.question(initial, has))
		return decision{value: value, found: true, asked: true}, err
	}
	if _, own := q.Defaults[def.Name]; lost && !own {
		reason := def.refused
		if err := checkParameter(def.TemplateVersionParameter, previous); err != nil {
			reason = err.Error() // names the options
		}
		return decision{}, fault.New(fault.Invalid, "the parameter %q cannot stay %s: %s", def.Name, def.shown(previous), def.hide(reason, previous)).
			WithField(def.Name, "--parameter "+def.Name+"=… is missing")
	}
	if !has {
		return decision{}, fault.New(fault.Invalid, "the parameter %q has no value: --parameter %s=… is missing", def.Name, def.Name).
			WithField(def.Name, "--parameter "+def.Name+"=… is missing")
	}
	if _, own := q.Defaults[def.Name]; own {
		if err := checkParameter(def.TemplateVersionParameter, initial); err != nil {
			return decision{}, fault.New(fault.Invalid, "the default of the parameter %q cannot be %s: %s", def.Name,
				def.shown(initial), def.hide(err.Error(), initial))
		}
		return decision{value: initial, found: true}, nil
	}
	return decision{}, nil
}

// check returns what is wrong with a value that the server has seen as an answer.
func (p parameter) check(value string) error {
	err := checkParameter(p.TemplateVersionParameter, value)
	if err == nil && p.refused != "" {
		err = errors.New(p.refused)
	}
	if err == nil {
		return nil
	}
	problem := p.hide(err.Error(), value)
	return fault.New(fault.Invalid, "the parameter %q cannot be %s: %s", p.Name, p.shown(value), problem).
		WithField(p.Name, problem)
}

// shown quotes a value for a message, unless it is masked.
func (p parameter) shown(value string) string {
	if p.masked {
		return "the masked value"
	}
	return strconv.Quote(value)
}

// hide returns problem, or a sentence without the value if problem quotes a masked one.
func (p parameter) hide(problem, value string) string {
	if p.masked && value != "" && strings.Contains(problem, value) {
		return "it does not satisfy the template's rules"
	}
	return problem
}

// question returns the question for the parameter's value.
func (p parameter) question(initial string, has bool) tty.Question {
	def := p.TemplateVersionParameter
	q := tty.Question{Text: def.DisplayName, Help: def.DescriptionPlaintext, Default: initial, HasDefault: has,
		Check: func(value string) error {
			if err := checkParameter(def, value); err != nil {
				return errors.New(p.hide(err.Error(), value))
			}
			return nil
		}}
	if q.Text == "" {
		q.Text = def.Name
	}
	if q.Help == "" {
		q.Help = def.Description
	}
	switch {
	case def.Type == "list(string)" && !wholeLists(def):
		// The options of a list, if any, are its possible members.
		q.Many, q.Choices = true, choices(def)
		if q.Default == "" {
			q.Default = "[]"
		}
		if len(q.Choices) == 0 {
			q.Text += " (with commas between them)"
		}
	case len(def.Options) > 0:
		q.Choices = choices(def)
	case def.Type == "bool":
		q.Choices = []tty.Choice{{Label: "yes", Value: "true"}, {Label: "no", Value: "false"}}
	default:
		q.Secret = p.masked
		if low, high := def.ValidationMin, def.ValidationMax; def.Type == "number" && (low != nil || high != nil) {
			q.Text += " (" + bounds(low, high) + ")"
		}
	}
	return q
}

// wholeLists reports whether the options of a parameter of type list are lists themselves: not members of the list, but
// values to choose from.
func wholeLists(def sdk.TemplateVersionParameter) bool {
	return slices.ContainsFunc(def.Options, func(o sdk.TemplateVersionParamOption) bool {
		var list []string
		return json.Unmarshal([]byte(o.Value), &list) == nil
	})
}

func choices(def sdk.TemplateVersionParameter) []tty.Choice {
	var out []tty.Choice
	for _, o := range def.Options {
		out = append(out, tty.Choice{Label: o.Name, Help: o.Description, Value: o.Value})
	}
	return out
}

// Previous splits a build's parameters into readable values (never nil) and parameters whose values only the owner may
// read.
func Previous(values []sdk.BuildParameter) (readable map[string]string, hidden map[string]bool) {
	readable, hidden = map[string]string{}, map[string]bool{}
	for _, v := range values {
		if v.Masked && v.Value == "" {
			hidden[v.Name] = true
		} else {
			readable[v.Name] = v.Value
		}
	}
	return readable, hidden
}
