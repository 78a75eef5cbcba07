package statefile_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/workspaces/statefile"
)

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := statefile.Read([]byte(`{"version": 4, "serial": 0, "lineage": "l", "resources": [{"mode": "managed", "instances": [{}, {}]}, {"mode": "data", "instances": [{}]}]}`))
	if want := (statefile.Head{Lineage: "l", Resources: 2}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"":                                 "not JSON",
		"nonsense":                         "not JSON",
		"[]":                               "not JSON",
		"{}":                               "no version",
		`{"version": 4}`:                   "no lineage",
		`{"version": 4, "lineage": ""}`:    "no lineage",
		`{"version": 4, "lineage": "l"}`:   "no serial",
		`{"version": 3, "lineage": "l"}`:   "version 3",
		`{"version": 4, "resources": "x"}`: "not JSON",
	} {
		if _, err := statefile.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}
