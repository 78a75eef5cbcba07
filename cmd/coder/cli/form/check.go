package form

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// checkParameter checks a value against a parameter's type, options and validation. The server alone checks whether it
// may only grow or shrink.
func checkParameter(def sdk.TemplateVersionParameter, value string) error {
	switch def.Type {
	case "number":
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", value)
		}
		low, high := def.ValidationMin, def.ValidationMax
		if low != nil && n < float64(*low) || high != nil && n > float64(*high) {
			return explain(def, "it must be "+bounds(low, high), low, high, value)
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
			return explain(def, "it must match "+def.ValidationRegex, nil, nil, value)
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

// explain returns the template's message with {min}, {max} and {value} filled in, or else the fallback: also for a
// message that names a bound that there is not.
func explain(def sdk.TemplateVersionParameter, fallback string, low, high *int64, value string) error {
	text := def.ValidationError
	if text == "" || low == nil && strings.Contains(text, "{min}") || high == nil && strings.Contains(text, "{max}") {
		return errors.New(fallback)
	}
	return errors.New(strings.NewReplacer("{min}", number(low), "{max}", number(high), "{value}", value).Replace(text))
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
