package httpapi

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxQuery bounds a search, in bytes.
const maxQuery = 4 << 10

// ParseSearch parses a search like `owner:me name:"my box" free text` into its terms. Free text is stored under "".
// Keys are lower case, and only the listed ones are allowed, each once; a key that is listed with a plus sign after it
// may be repeated, and its values are joined with commas.
func ParseSearch(q string, keys ...string) (map[string]string, error) {
	if len(q) > maxQuery {
		return nil, fault.New(fault.Invalid, "The search is longer than %d bytes.", maxQuery)
	}
	terms := map[string]string{}
	var free []string
	for _, word := range splitSearch(q) {
		key, value, ok := strings.Cut(word, ":")
		if !ok {
			free = append(free, strings.ReplaceAll(word, `"`, ""))
			continue
		}
		key, value = strings.ToLower(key), strings.ReplaceAll(value, `"`, "")
		before, twice := terms[key]
		again := slices.Contains(keys, key+"+")
		switch {
		case !again && !slices.Contains(keys, key) || strings.HasSuffix(key, "+"):
			return nil, fault.New(fault.Invalid, "The search is invalid.").
				WithField("q", "does not support "+key+": use "+strings.ReplaceAll(strings.Join(keys, ", "), "+", ""))
		case value == "":
			return nil, fault.New(fault.Invalid, "The search is invalid.").WithField("q", key+": needs a value")
		case twice && again:
			value = before + "," + value
		case twice:
			return nil, fault.New(fault.Invalid, "The search is invalid.").WithField("q", key+": can be used once")
		}
		terms[key] = value
	}
	if len(free) > 0 {
		terms[""] = strings.Join(free, " ")
	}
	return terms, nil
}

// SearchTime returns the time in a search's term: RFC 3339, or a date, which means its beginning in UTC. It is nil if
// the term is absent.
func SearchTime(terms map[string]string, key string) (*time.Time, error) {
	text, given := terms[key]
	if !given {
		return nil, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, strings.ToUpper(text)); err == nil {
			return &t, nil
		}
	}
	return nil, fault.New(fault.Invalid, "The search is invalid.").
		WithField("q", key+": must be a date such as 2026-11-23 or a time such as 2026-11-23T08:00:00Z")
}

// SearchBool returns the boolean in a search's term, nil if the term is absent.
func SearchBool(terms map[string]string, key string) (*bool, error) {
	text, given := terms[key]
	if !given {
		return nil, nil
	}
	b, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		return nil, fault.New(fault.Invalid, "The search is invalid.").WithField("q", key+": must be true or false")
	}
	return &b, nil
}

// splitSearch splits at whitespace outside of double quotes.
func splitSearch(q string) []string {
	quoted := false
	return strings.FieldsFunc(q, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\n')
	})
}
