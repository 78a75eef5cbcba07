package workspaces

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/templates"
)

func TestSameValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, form, a, b string
		want             bool
	}{
		{"number", "", "1", "1.0", true},
		{"number", "", "10", "1e1", true},
		{"number", "", "0.1", "0.10", true},
		{"number", "", "1", "2", false},
		{"number", "", "12345678901234567890", "12345678901234567891", false},
		{"number", "", "1e999999999999", "1e999999999998", false},
		{"number", "", "x", "1", false},
		{"number", "", strings.Repeat("0", 100) + "1", "1", false},
		{"string", "", "1", "1.0", false},
		{"string", "", "", "", true},
		{"bool", "", "true", "false", false},
		{"list(string)", "multi-select", `["a","b"]`, `["b", "a"]`, true},
		{"list(string)", "tag-select", `["a","b"]`, `["b","a"]`, true},
		{"list(string)", "multi-select", `["a","a"]`, `["a"]`, false},
		{"list(string)", "", `["a","b"]`, `[ "a", "b" ]`, true},
		{"list(string)", "", `["a","b"]`, `["b","a"]`, false},
		{"list(string)", "radio", `["a","b"]`, `["b","a"]`, false},
		{"list(string)", "", `["a"`, `["a"]`, false},
	} {
		var d templates.Definition
		d.Type, d.FormType = c.kind, c.form
		if got := sameValue(d, c.a, c.b); got != c.want {
			t.Errorf("%s %s: %s and %s: got %t", c.kind, c.form, c.a, c.b, got)
		}
	}
}
