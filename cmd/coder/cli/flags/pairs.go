package flags

import (
	"encoding/csv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Pairs parses the name=value pairs of a flag. An argument that begins with a quotation mark may be a line of CSV with
// several pairs, as scripts for Coder write values with commas and quotation marks: '"list=[""a"",""b""]"'.
func Pairs(flag string, arguments []string) (map[string]string, error) {
	values := make(map[string]string, len(arguments))
	for _, argument := range arguments {
		for _, pair := range unquoted(argument) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok || name == "" {
				return nil, fault.New(fault.Invalid, "--%s %q is not name=value", flag, argument)
			}
			values[name] = value
		}
	}
	return values, nil
}

// unquoted returns the fields of an argument that is a quoted line of CSV, or the argument as it is.
func unquoted(argument string) []string {
	if !strings.HasPrefix(argument, `"`) {
		return []string{argument}
	}
	lines, err := csv.NewReader(strings.NewReader(argument)).ReadAll()
	if err != nil || len(lines) != 1 {
		return []string{argument}
	}
	return lines[0]
}
