package flags

import (
	"strings"

	"github.com/codermesh/codermesh/internal/fault"
)

// Pairs parses the name=value pairs of a flag.
func Pairs(flag string, pairs []string) (map[string]string, error) {
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
