package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/tty"
)

// paramFlags are the flags that give values to a template's parameters.
type paramFlags struct {
	values    []string // name=value
	defaults  []string
	ephemeral []string
	file      string
}

func (p *paramFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&p.values, "parameter", nil, "parameter as name=value; may be repeated")
	f.StringArrayVar(&p.defaults, "parameter-default", nil, "default of a parameter as name=value, instead of the template's; may be repeated")
	f.StringArrayVar(&p.ephemeral, "ephemeral-parameter", nil, "parameter for this build only, as name=value; may be repeated")
	f.StringVar(&p.file, "rich-parameter-file", "", "YAML or JSON file with a value per parameter")
	SetEnv(f.Lookup("parameter"), "CODER_RICH_PARAMETER")
	SetEnv(f.Lookup("parameter-default"), "CODER_RICH_PARAMETER_DEFAULT")
	SetEnv(f.Lookup("ephemeral-parameter"), "CODER_EPHEMERAL_PARAMETER")
	SetEnv(f.Lookup("rich-parameter-file"), "CODER_RICH_PARAMETER_FILE")
}

// given is what the flags and the file say: values by name, and defaults by name.
func (p *paramFlags) given() (values, defaults map[string]string, err error) {
	values = map[string]string{}
	if p.file != "" {
		data, err := os.ReadFile(p.file)
		if err != nil {
			return nil, nil, fault.New(fault.Invalid, "the parameter file cannot be read: %w", err)
		}
		if values, err = parseValues(data); err != nil {
			return nil, nil, fault.New(fault.Invalid, "the parameter file %s cannot be used: %w", p.file, err)
		}
	}
	for _, list := range []struct {
		flag  string
		pairs []string
	}{{"parameter", p.values}, {"ephemeral-parameter", p.ephemeral}} {
		pairs, err := parsePairs(list.flag, list.pairs)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(values, pairs)
	}
	defaults, err = parsePairs("parameter-default", p.defaults)
	return values, defaults, err
}

// parsePairs reads name=value pairs of a flag.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	values := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Invalid, "--%s %q is not name=value", flag, pair)
		}
		values[name] = value
	}
	return values, nil
}

// parameter is one as the form has it for the answers so far.
type parameter struct {
	sdk.TemplateVersionParameter
	refused string // what the server finds wrong with its answer, "" for nothing
	masked  bool   // the value is not shown
}

// paramQuery is what is known of the parameters of a build to come.
type paramQuery struct {
	// form asks the server which parameters there are for the answers so far, in order: whether there is one at all, and what its
	// options and its default are, may depend on others.
	form     func(answers map[string]string) ([]parameter, error)
	values   map[string]string // wanted by the person: must be names of parameters
	copied   map[string]string // from another workspace: those that are none are left out
	preset   map[string]string // from a preset
	defaults map[string]string // from the person, instead of the template's
	previous map[string]string // of the build before, nil when there was none
	hidden   map[string]bool   // of the build before, with values that only the workspace's owner may read
	always   bool              // ask for those that have a value, too
	// ask puts a question. Nil when nobody is there: then what lacks a value is an error that names the flag.
	ask func(tty.Question) (string, error)
}

// decision is the value of one parameter; found is false when it is left to the server.
type decision struct {
	value        string
	found, asked bool
}

// resolve decides each parameter's value. Those that the server knows itself (unchanged, or the template's default) are left
// out unless they were given. After an answer that is not what the form has taken for granted, the rest of the form is asked
// for anew.
func (q paramQuery) resolve() ([]sdk.ParameterValue, error) {
	answers := map[string]string{}
	for _, known := range []map[string]string{q.defaults, q.previous, q.preset, q.copied, q.values} {
		maps.Copy(answers, known)
	}
	decided := map[string]decision{}
	for {
		form, err := q.form(answers)
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
				// What is wrong with a name may be the reason for what is wrong here.
				return nil, cmp.Or(q.checkNames(form), err)
			}
			decided[def.Name] = d
			if before, known := answers[def.Name]; d.asked && d.value != before && (known || d.value != def.DefaultValue) {
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

// checkNames refuses values for parameters that the template does not have.
func (q paramQuery) checkNames(form []parameter) error {
	var known []string
	for _, def := range form {
		known = append(known, def.Name)
	}
	for _, given := range []map[string]string{q.values, q.defaults} {
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if slices.Contains(known, name) {
				continue
			}
			list := "it has none"
			if len(known) > 0 {
				list = "it has " + strings.Join(known, ", ")
			}
			return fault.New(fault.Invalid, "the template has no parameter %q: %s", name, list).WithField(name, "not a parameter of this template")
		}
	}
	return nil
}

// one decides the value of one parameter.
func (q paramQuery) one(def parameter) (decision, error) {
	previous, existed := q.previous[def.Name]
	if value, ok := q.values[def.Name]; ok {
		if existed && !def.Mutable && !def.Ephemeral && previous != value {
			return decision{}, fault.New(fault.Invalid, "the parameter %q cannot be changed after the workspace was created", def.Name).
				WithField(def.Name, "is immutable")
		}
		return decision{value: value, found: true}, def.check(value)
	}
	for _, given := range []map[string]string{q.copied, q.preset} {
		if value, ok := given[def.Name]; ok {
			return decision{value: value, found: true}, def.check(value)
		}
	}
	if q.hidden[def.Name] {
		return decision{}, nil // the server keeps the value
	}
	if def.Ephemeral && !(def.Required && q.previous == nil) {
		return decision{}, nil
	}
	lost := existed && def.Mutable && def.refused != "" // the answer of before is none any more
	if existed && !lost && !(q.always && def.Mutable) {
		return decision{}, nil
	}
	initial, has := def.DefaultValue, !def.Required
	if own, ok := q.defaults[def.Name]; ok {
		initial, has = own, true
	}
	if existed && !lost {
		initial, has = previous, true
	}
	if q.ask != nil {
		value, err := q.ask(def.question(initial, has))
		return decision{value: value, found: true, asked: true}, err
	}
	if _, own := q.defaults[def.Name]; lost && !own {
		return decision{}, fault.New(fault.Invalid, "the parameter %q cannot stay %s: %s", def.Name, def.shown(previous), def.hide(def.refused, previous)).
			WithField(def.Name, "--parameter "+def.Name+"=… is missing")
	}
	if !has {
		return decision{}, fault.New(fault.Invalid, "the parameter %q has no value: --parameter %s=… is missing", def.Name, def.Name).
			WithField(def.Name, "--parameter "+def.Name+"=… is missing")
	}
	if _, own := q.defaults[def.Name]; own {
		if err := checkParameter(def.TemplateVersionParameter, initial); err != nil {
			return decision{}, fault.New(fault.Invalid, "the default of the parameter %q cannot be %s: %s", def.Name, def.shown(initial), def.hide(err.Error(), initial))
		}
		return decision{value: initial, found: true}, nil
	}
	return decision{}, nil
}

// check says what is wrong with a value that the server has been told as an answer.
func (p parameter) check(value string) error {
	err := checkParameter(p.TemplateVersionParameter, value)
	if err == nil && p.refused != "" {
		err = errors.New(p.refused)
	}
	if err == nil {
		return nil
	}
	problem := p.hide(err.Error(), value)
	return fault.New(fault.Invalid, "the parameter %q cannot be %s: %s", p.Name, p.shown(value), problem).WithField(p.Name, problem)
}

// shown is a value as a message may quote it.
func (p parameter) shown(value string) string {
	if p.masked {
		return "the masked value"
	}
	return strconv.Quote(value)
}

// hide replaces what is wrong with a masked value by a sentence without the value.
func (p parameter) hide(problem, value string) string {
	if p.masked && value != "" && strings.Contains(problem, value) {
		return "it does not follow the template's rules"
	}
	return problem
}

// question asks for the parameter's value.
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
	case def.Type == "list(string)":
		// A list is typed as JSON; its options, where it has some, are its possible members.
		if q.Default == "" {
			q.Default = "[]"
		}
		q.Text += ` (as JSON, for example ["a","b"])`
		for _, o := range def.Options {
			q.Help += "\n  " + o.Value
		}
	case len(def.Options) > 0:
		for _, o := range def.Options {
			q.Choices = append(q.Choices, tty.Choice{Label: o.Name, Help: o.Description, Value: o.Value})
		}
	case def.Type == "bool":
		q.Choices = []tty.Choice{{Label: "yes", Value: "true"}, {Label: "no", Value: "false"}}
	default:
		q.Secret = p.masked
	}
	return q
}

// checkParameter says whether a value fits a parameter's type, options and validation. Whether it may only grow or shrink is
// the server's to judge.
func checkParameter(def sdk.TemplateVersionParameter, value string) error {
	switch def.Type {
	case "number":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
		low, high := def.ValidationMin, def.ValidationMax
		if low != nil && n < float64(*low) || high != nil && n > float64(*high) {
			return explain(def, "it must be "+bounds(low, high), map[string]string{"min": number(low), "max": number(high), "value": value})
		}
	case "bool":
		if value != "true" && value != "false" {
			return errors.New("it must be true or false")
		}
	case "list(string)":
		return checkList(def, value)
	}
	if len(def.Options) > 0 {
		return checkOption(def, value)
	}
	if def.ValidationRegex != "" && def.Type == "string" {
		re, err := regexp.Compile(def.ValidationRegex)
		if err == nil && !re.MatchString(value) {
			return explain(def, "it must match "+def.ValidationRegex, map[string]string{"value": value})
		}
	}
	return nil
}

func checkOption(def sdk.TemplateVersionParameter, value string) error {
	var values []string
	for _, o := range def.Options {
		if o.Value == value {
			return nil
		}
		values = append(values, o.Value)
	}
	return fmt.Errorf("it must be one of %s", strings.Join(values, ", "))
}

func checkList(def sdk.TemplateVersionParameter, value string) error {
	var items []string
	if err := json.Unmarshal([]byte(value), &items); err != nil {
		return errors.New(`it must be a list of strings in JSON, for example ["a","b"]`)
	}
	// Options of a list are its members in multi-select forms, and whole lists otherwise.
	if len(def.Options) == 0 || checkOption(def, value) == nil {
		return nil
	}
	for _, item := range items {
		if err := checkOption(def, item); err != nil {
			return fmt.Errorf("%q is not possible: %w", item, err)
		}
	}
	return nil
}

// explain is the template's own message with {min}, {max} and {value} filled in, or the fallback.
func explain(def sdk.TemplateVersionParameter, fallback string, facts map[string]string) error {
	if def.ValidationError == "" {
		return errors.New(fallback)
	}
	text := def.ValidationError
	for name, value := range facts {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return errors.New(text)
}

func bounds(low, high *int64) string {
	switch {
	case low != nil && high != nil:
		return fmt.Sprintf("between %d and %d", *low, *high)
	case low != nil:
		return fmt.Sprintf("at least %d", *low)
	default:
		return fmt.Sprintf("at most %d", *high)
	}
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// asker asks on the terminal, or is nil when nobody is there or the person said not to ask.
func (a *app) asker(ctx context.Context, silent bool) func(tty.Question) (string, error) {
	s := a.streams()
	if silent || !s.InTTY {
		return nil
	}
	return func(q tty.Question) (string, error) { return s.Ask(ctx, q) }
}

const noPreset = "none"

// choosePreset finds the preset that create's flags name, or else the template's default. The zero preset means none: when the flags
// say so, or when values are copied from another workspace.
func (a *app) choosePreset(ctx context.Context, client *sdk.Client, version uuid.UUID, o *createOptions) (sdk.Preset, error) {
	name := o.preset
	if name == noPreset || name == "" && o.copyFrom != "" {
		return sdk.Preset{}, nil
	}
	presets, err := client.TemplateVersionPresets(ctx, version)
	if err != nil {
		return sdk.Preset{}, err
	}
	if name == "" {
		i := slices.IndexFunc(presets, func(p sdk.Preset) bool { return p.Default })
		if i < 0 {
			return sdk.Preset{}, nil
		}
		fmt.Fprintf(a.streams().Err, "Using the template's default preset %s (--preset none to use none).\n", tty.Clean(presets[i].Name))
		return presets[i], nil
	}
	var names []string
	for _, p := range presets {
		if strings.EqualFold(p.Name, name) {
			return p, nil
		}
		names = append(names, p.Name)
	}
	list := "it has none"
	if len(names) > 0 {
		list = "it has " + strings.Join(names, ", ")
	}
	return sdk.Preset{}, fault.New(fault.NotFound, "the template has no preset %q: %s", name, list)
}

// previousValues splits a build's parameters into those with a readable value, never nil, and those whose value only the owner may read.
func previousValues(values []sdk.BuildParameter) (readable map[string]string, hidden map[string]bool) {
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
