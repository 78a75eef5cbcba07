package idpsync

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxValues bounds the texts of one claim that count.
	maxValues = 10000
	// maxValue bounds one of them, in bytes.
	maxValue = 1024
)

// Claims are what an identity provider says of a user.
type Claims struct {
	Values map[string]any // as encoding/json decodes them
	// Partial means that the provider sent fewer claims than at a sign-in: a missing claim says nothing.
	Partial bool
}

// Warning is something in a claim that an operator must correct.
type Warning struct{ Claim, Problem string }

// values are the texts of one claim.
type values struct {
	all []string
	// whole reports that the claim was understood completely, so that what it does not name can be taken away.
	whole bool
}

// read returns the texts in a claim, each once and in the claim's order, and what is wrong with it.
func (c Claims) read(field string) (v values, problems []Warning) {
	v.whole = true
	warn := func(format string, args ...any) {
		v.whole = false
		problems = append(problems, Warning{field, fmt.Sprintf(format, args...)})
	}
	claim, sent := c.Values[field]
	switch claim := claim.(type) {
	case nil:
		if elsewhere, ok := c.Values["_claim_names"].(map[string]any); ok && elsewhere[field] != nil {
			warn("has too many values: the provider keeps them elsewhere; assign fewer to the application")
		}
		if !sent && c.Partial {
			v.whole = false
		}
	case string:
		// Some providers send a list of one as text. A list in one text is another matter.
		if strings.ContainsAny(claim, ", ;\n\t") {
			warn("must be a list of texts, not one text")
			return v, problems
		}
		v.add(claim)
		problems = append(problems, Warning{field, "should be a list of texts; its text counts as the only one"})
	case []any:
		wrong, long, seen := 0, 0, make(map[string]bool, min(len(claim), maxValues))
		for _, each := range claim {
			text, ok := each.(string)
			switch {
			case !ok:
				wrong++
			case len(text) > maxValue || !utf8.ValidString(text) || strings.ContainsRune(text, 0):
				long++
			case len(v.all) == maxValues && !seen[text]:
				warn("has more than %d values", maxValues)
				return v, problems
			case !seen[text]:
				seen[text] = true
				v.add(text)
			}
		}
		if wrong > 0 {
			warn("has %d values that are not text", wrong)
		}
		if long > 0 {
			warn("has %d values that are longer than %d bytes or not valid text", long, maxValue)
		}
	default:
		warn("must be a list of texts")
	}
	return v, problems
}

func (v *values) add(text string) {
	if text != "" {
		v.all = append(v.all, text)
	}
}

// Any reports whether a claim names one of the wanted texts. An unusable claim names none; sure is false then.
func Any(c Claims, field string, wanted []string) (found, sure bool) {
	v, _ := c.read(field)
	return slices.ContainsFunc(v.all, func(text string) bool { return slices.Contains(wanted, text) }), v.whole
}

// matching returns the texts that match the filter, which is valid.
func matching(filter *string) func(string) bool {
	if filter == nil || *filter == "" {
		return func(string) bool { return true }
	}
	form, err := regexp.Compile(*filter)
	if err != nil {
		return func(string) bool { return false } // refused when it is set
	}
	return form.MatchString
}
