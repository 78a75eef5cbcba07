package templates_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/templates"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		template, version bool
	}{
		{"process", true, true},
		{"my-template_2", true, true},
		{"A", true, true},
		{strings.Repeat("a", 32), true, true},
		{strings.Repeat("a", 33), false, true},
		{strings.Repeat("a", 65), false, false},
		{"v1.2.3", false, true},
		{"", false, false},
		{"-a", false, false},
		{"a-", false, false},
		{"a--b", false, false},
		{"a b", false, false},
		{"a/b", false, false},
		{"é", false, false},
		{"a\n", false, false},
	} {
		if got := templates.CheckName(tt.name) == nil; got != tt.template {
			t.Errorf("CheckName(%q) accepts: %t, want %t", tt.name, got, tt.template)
		}
		if got := templates.CheckVersionName(tt.name) == nil; got != tt.version {
			t.Errorf("CheckVersionName(%q) accepts: %t, want %t", tt.name, got, tt.version)
		}
	}
}
