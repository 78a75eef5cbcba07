package templates

import (
	"slices"
	"strings"

	"github.com/codermesh/codermesh/internal/fault"
)

// maxQuery bounds a search, in bytes.
const maxQuery = 4 << 10

// ParseSearch reads a search like `owner:me name:"my box" free text` into its terms. Free text comes under "". Keys are
// lower case, and only the listed ones are allowed.
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
		_, twice := terms[key]
		switch {
		case !slices.Contains(keys, key):
			return nil, fault.New(fault.Invalid, "The search cannot be understood.").
				WithField("q", "does not know "+key+": it knows "+strings.Join(keys, ", "))
		case value == "":
			return nil, fault.New(fault.Invalid, "The search cannot be understood.").WithField("q", key+": needs a value")
		case twice:
			return nil, fault.New(fault.Invalid, "The search cannot be understood.").WithField("q", key+": may be given once")
		}
		terms[key] = value
	}
	if len(free) > 0 {
		terms[""] = strings.Join(free, " ")
	}
	return terms, nil
}

// splitSearch splits at blanks outside of double quotes.
func splitSearch(q string) []string {
	quoted := false
	return strings.FieldsFunc(q, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\n')
	})
}
