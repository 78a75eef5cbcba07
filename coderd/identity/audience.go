package identity

import (
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Bounds of a template's audiences.
const (
	MaxAudiences   = 16
	maxAudienceLen = 255 // bytes
)

// CheckAudience returns a fault, Invalid, for what cannot be an audience: it has printable ASCII characters without
// spaces and commas.
func CheckAudience(audience string) error {
	if audience == "" || len(audience) > maxAudienceLen {
		return fault.New(fault.Invalid, "An audience has 1 to %d characters.", maxAudienceLen)
	}
	if strings.ContainsFunc(audience, func(c rune) bool { return c <= ' ' || c > '~' || c == ',' }) {
		return fault.New(fault.Invalid,
			"The audience %q has other characters than printable ASCII, or a space or comma.", audience)
	}
	return nil
}

// CheckAudiences returns those of a template in their order, without repetitions, or a fault.
func CheckAudiences(audiences []string) ([]string, error) {
	out := []string{}
	for _, audience := range audiences {
		if err := CheckAudience(audience); err != nil {
			return nil, err
		}
		if !slices.Contains(out, audience) {
			out = append(out, audience)
		}
	}
	if len(out) > MaxAudiences {
		return nil, fault.New(fault.Invalid, "A template allows at most %d audiences.", MaxAudiences)
	}
	return out, nil
}
