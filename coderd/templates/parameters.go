package templates

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// The types of a parameter.
const (
	typeString = "string"
	typeNumber = "number"
	typeBool   = "bool"
	typeList   = "list(string)"
)

// MaxValue bounds a parameter's value, in bytes.
const MaxValue = 64 << 10

// Values holds the possible sources of a build's parameters, strongest first. The parameter's own default comes last.
type Values struct {
	Given    []sdk.ParameterValue // from the request
	Preset   []sdk.ParameterValue // from the preset that the request names
	Previous []sdk.ParameterValue // with which the previous build was made, whether someone chose them or the template computed them
	Computed map[string]bool      // names of Previous that the template computed
	Gone     map[string]bool      // names of Previous whose value the form for these answers no longer allows, beyond what the definitions say
	// NewOwner is set for the build that gives a prebuilt workspace to its user: what the template computed before
	// there was an owner, and may change, is computed again for them.
	NewOwner bool
	// Ending is set for builds that stop or delete: they continue with the existing values, because a workspace must be
	// able to end whatever happened to its template. Only values in the request itself are checked.
	Ending bool
}

// Resolve returns the value of every parameter that the template defines, in the order of the definitions. The error is
// a fault that names every refused value and the reason.
func Resolve(definitions []Definition, from Values) ([]sdk.ParameterValue, error) {
	given, preset, previous := byName(from.Given), byName(from.Preset), byName(from.Previous)
	refused := fault.New(fault.Invalid, "The parameters do not match the template.")
	for i, v := range from.Given {
		switch {
		case !slices.ContainsFunc(definitions, func(d Definition) bool { return d.Name == v.Name || d.Name == AnyName }):
			refused.WithField(v.Name, "the template has no parameter with this name")
		case slices.ContainsFunc(from.Given[:i], func(o sdk.ParameterValue) bool { return o.Name == v.Name }):
			refused.WithField(v.Name, "is given twice")
		}
	}
	out := make([]sdk.ParameterValue, 0, len(definitions))
	definitions = expand(definitions, from)
	for _, d := range definitions {
		before, hadBefore := previous[d.Name]
		if from.NewOwner && d.Mutable && from.Computed[d.Name] {
			before, hadBefore = "", false
		}
		value, fresh := d.DefaultValue, false
		chosen, isGiven := given[d.Name]
		if !isGiven {
			chosen, isGiven = preset[d.Name]
		}
		switch {
		case isGiven:
			value, fresh = chosen, true
		case hadBefore && !d.Ephemeral:
			value = before
		case d.Conditional || d.Dynamic && !d.Required:
			continue // Terraform finds the default, or that the parameter does not exist
		case d.Required && !from.Ending:
			refused.WithField(d.Name, "is required: the template has no default for it")
			continue
		}
		out = append(out, sdk.ParameterValue{Name: d.Name, Value: value})
		if !fresh && (from.Ending || d.Dynamic && from.Computed[d.Name]) { // Terraform found this value, and checks it
			continue
		}
		// A value that the template no longer allows may be replaced: otherwise the workspace could never be updated.
		lost := from.Gone[d.Name] || Check(d.checkable(), before, "") != ""
		if fresh && hadBefore && !d.Mutable && !d.Ephemeral && value != before && !lost {
			problem := fmt.Sprintf("cannot be changed after the workspace was created (it is %q)", before)
			if d.Masked() {
				problem = "cannot be changed after the workspace was created"
			}
			refused.WithField(d.Name, problem)
			continue
		}
		if !hadBefore || d.Ephemeral {
			before = ""
		}
		if problem := Check(d.checkable(), value, before); problem != "" {
			refused.WithField(d.Name, d.hide(problem, value))
		}
	}
	if len(refused.Fields) > 0 {
		return nil, refused
	}
	// An import does not find the parameters that a module has for some answers only. They keep their values, too.
	for _, v := range from.Previous {
		if from.Computed[v.Name] &&
			!slices.ContainsFunc(definitions, func(d Definition) bool { return d.Name == v.Name }) {
			out = append(out, v)
		}
	}
	return out, nil
}

func byName(values []sdk.ParameterValue) map[string]string {
	out := make(map[string]string, len(values))
	for _, v := range values {
		out[v.Name] = v.Value
	}
	return out
}

// Check returns what is wrong with a parameter's value, "" if nothing is. previous is the value of the previous build,
// "" for none.
func Check(d sdk.TemplateVersionParameter, value, previous string) string {
	if len(value) > MaxValue {
		return fmt.Sprintf("is longer than %d bytes", MaxValue)
	}
	if strings.ContainsRune(value, 0) {
		return "contains a NUL character"
	}
	switch d.Type {
	case typeNumber:
		return checkNumber(d, value, previous)
	case typeBool:
		if value != "true" && value != "false" {
			return fmt.Sprintf("must be true or false, not %q", value)
		}
	case typeList:
		return checkList(d, value)
	case typeString, "":
	default:
		return fmt.Sprintf("has the unknown type %q", d.Type)
	}
	if problem := checkOption(d, value); problem != "" {
		return problem
	}
	return checkPattern(d, value)
}

var numberForm = lazyregexp.New(`^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func parseNumber(value string) (float64, bool) {
	if !numberForm().MatchString(value) {
		return 0, false
	}
	f, err := strconv.ParseFloat(value, 64)
	return f, err == nil && !math.IsInf(f, 0)
}

func checkNumber(d sdk.TemplateVersionParameter, value, previous string) string {
	f, ok := parseNumber(value)
	if !ok {
		return fmt.Sprintf("must be a number, not %q", value)
	}
	if problem := checkOption(d, value); problem != "" {
		return problem
	}
	if d.ValidationMin != nil && f < float64(*d.ValidationMin) {
		return inWords(d, value, fmt.Sprintf("must be at least %d", *d.ValidationMin))
	}
	if d.ValidationMax != nil && f > float64(*d.ValidationMax) {
		return inWords(d, value, fmt.Sprintf("must be at most %d", *d.ValidationMax))
	}
	before, ok := parseNumber(previous)
	if !ok {
		return ""
	}
	switch {
	case d.ValidationMonotonic == "increasing" && f < before:
		return "can only grow: it is " + previous // the template's own message is about its bounds
	case d.ValidationMonotonic == "decreasing" && f > before:
		return "can only shrink: it is " + previous
	}
	return ""
}

func checkList(d sdk.TemplateVersionParameter, value string) string {
	var items []string
	if err := json.Unmarshal([]byte(value), &items); err != nil || items == nil {
		return `must be a JSON list of texts, like ["a","b"]`
	}
	if len(d.Options) == 0 || checkOption(d, value) == "" {
		return ""
	}
	if d.FormType != "" && d.FormType != "multi-select" {
		return checkOption(d, value)
	}
	for _, item := range items {
		if problem := checkOption(d, item); problem != "" {
			return problem
		}
	}
	return ""
}

func checkOption(d sdk.TemplateVersionParameter, value string) string {
	if len(d.Options) == 0 {
		return ""
	}
	values := make([]string, len(d.Options))
	for i, o := range d.Options {
		if o.Value == value {
			return ""
		}
		values[i] = strconv.Quote(o.Value)
	}
	return fmt.Sprintf("must be one of %s, not %q", strings.Join(values, ", "), value)
}

func checkPattern(d sdk.TemplateVersionParameter, value string) string {
	if d.ValidationRegex == "" {
		return ""
	}
	pattern, err := regexp.Compile(d.ValidationRegex)
	if err != nil {
		return fmt.Sprintf("cannot be checked: the template's pattern %q is not valid", d.ValidationRegex)
	}
	if !pattern.MatchString(value) {
		return inWords(d, value, fmt.Sprintf("must match %s", d.ValidationRegex))
	}
	return ""
}

// inWords prefers the template's own message, with {min}, {max} and {value} replaced, unless it names a bound that
// there is not.
func inWords(d sdk.TemplateVersionParameter, value, fallback string) string {
	if d.ValidationError == "" || d.ValidationMin == nil && strings.Contains(d.ValidationError, "{min}") ||
		d.ValidationMax == nil && strings.Contains(d.ValidationError, "{max}") {
		return fallback
	}
	pairs := []string{"{value}", value}
	if d.ValidationMin != nil {
		pairs = append(pairs, "{min}", strconv.FormatInt(*d.ValidationMin, 10))
	}
	if d.ValidationMax != nil {
		pairs = append(pairs, "{max}", strconv.FormatInt(*d.ValidationMax, 10))
	}
	return strings.NewReplacer(pairs...).Replace(d.ValidationError)
}
