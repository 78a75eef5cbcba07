package sshoffer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sshoffer"
)

func TestWhatAServerMaySet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		want       bool
	}{
		{"ServerAliveInterval", "30", true},
		{"SetEnv", "LANG=C.UTF-8 A=b", true},
		{"loglevel", "INFO", true},
		{"ProxyCommand", "sh", false},
		{"LocalCommand", "true", false},
		{"ForwardAgent", "yes", false},
		{"StrictHostKeyChecking", "no", false},
		{"UserKnownHostsFile", "/dev/null", false},
		{"SendEnv", "AWS_*", false},
		{"Include", "/tmp/x", false},
		{"SetEnv", "A=b\nProxyCommand sh", false},
		{"SetEnv", "$(id)", false},
		{"SetEnv", "", false},
		{"", "30", false},
	} {
		if got := sshoffer.Option(tt.name, tt.text); got != tt.want {
			t.Errorf("%s %q: %t, want %t", tt.name, tt.text, got, tt.want)
		}
	}
	for text, want := range map[string]bool{"coder": true, ".coder": true, "coder-acme": true, "com": false, "acme.com": false, "coder.com": false, "": false, "*": false} {
		if got := sshoffer.Suffix(text); got != want {
			t.Errorf("suffix %q: %t, want %t", text, got, want)
		}
	}
	for text, want := range map[string]bool{"coder.": true, "coder-acme.": true, "coder": false, "g": false, "": false, "*": false} {
		if got := sshoffer.Prefix(text); got != want {
			t.Errorf("prefix %q: %t, want %t", text, got, want)
		}
	}
	if names := sshoffer.Options(); !slices.IsSorted(names) || strings.ToLower(strings.Join(names, "")) != strings.Join(names, "") {
		t.Errorf("options: %v", names)
	}
}
