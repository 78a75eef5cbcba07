package nearest_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/nearest"
)

func TestTo(t *testing.T) {
	t.Parallel()
	names := []string{"output", "column", "search", "dev", "devel"}
	for word, want := range map[string]string{"outptu": "output", "colum": "column", "Search": "search", "dv": "dev", "zzz": "", "": "", "develop": "devel", "o": ""} {
		if got := nearest.To(word, names); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := nearest.To("x", nil); got != "" {
		t.Errorf("without names: got %q", got)
	}
}
