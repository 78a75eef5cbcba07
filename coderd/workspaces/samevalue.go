package workspaces

import (
	"encoding/json"
	"math/big"
	"slices"

	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxNumber is the longest text that is compared as a number.
const maxNumber = 64

// sameValue reports whether two texts are the same value of a parameter: numbers of one amount, and lists of the same
// elements. The order of the elements counts unless users pick them from options or enter them as tags.
func sameValue(d templates.Definition, a, b string) bool {
	if a == b {
		return true
	}
	switch d.Type {
	case "number":
		x, okX := number(a)
		y, okY := number(b)
		return okX && okY && x.Cmp(y) == 0
	case "list(string)":
		var x, y []string
		if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
			return false
		}
		if d.FormType == "multi-select" || d.FormType == "tag-select" {
			slices.Sort(x)
			slices.Sort(y)
		}
		return slices.Equal(x, y)
	}
	return false
}

func number(text string) (*big.Float, bool) {
	if len(text) > maxNumber {
		return nil, false
	}
	n, _, err := big.ParseFloat(text, 10, 512, big.ToNearestEven)
	return n, err == nil && !n.IsInf()
}

// sameValues reports whether two sets of resolved values are the same.
func sameValues(definitions []templates.Definition, a, b []value) bool {
	return slices.EqualFunc(a, b, func(x, y value) bool {
		if x.Name != y.Name || x.computed != y.computed {
			return false
		}
		i := slices.IndexFunc(definitions, func(d templates.Definition) bool { return d.Name == x.Name })
		return x.Value == y.Value || i >= 0 && sameValue(definitions[i], x.Value, y.Value)
	})
}

// spelled returns the given values as the other ones spell them.
func spelled(given []sdk.ParameterValue, as []value) []sdk.ParameterValue {
	out := slices.Clone(given)
	for i := range out {
		if j := slices.IndexFunc(as, func(v value) bool { return v.Name == out[i].Name }); j >= 0 {
			out[i].Value = as[j].Value
		}
	}
	return out
}
