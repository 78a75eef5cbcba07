package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestParseSearch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		q    string
		want map[string]string // nil means refused
	}{
		{"", map[string]string{}},
		{"owner:me", map[string]string{"owner": "me"}},
		{"  Owner:me   name:dev ", map[string]string{"owner": "me", "name": "dev"}},
		{`name:"my box" free text`, map[string]string{"name": "my box", "": "free text"}},
		{"me/dev", map[string]string{"": "me/dev"}},
		{"name:a:b", map[string]string{"name": "a:b"}},
		{"color:red", nil},
		{"name:", nil},
		{"name:a name:b", nil},
		{"status:a STATUS:b", map[string]string{"status": "a,b"}},
		{"status+:a", nil},
		{strings.Repeat("x", 5000), nil},
	} {
		got, err := httpapi.ParseSearch(tt.q, "owner", "name", "status+")
		if tt.want == nil {
			if fault.CodeOf(err) != fault.Invalid {
				t.Errorf("ParseSearch(%.20q): error %v, want one of code invalid", tt.q, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseSearch(%q): %v", tt.q, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("ParseSearch(%q) (-want +got):\n%s", tt.q, diff)
		}
	}
}

func FuzzParseSearch(f *testing.F) {
	f.Add(`owner:me name:"a b" c`)
	f.Fuzz(func(t *testing.T, q string) {
		terms, err := httpapi.ParseSearch(q, "owner", "name")
		if err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("ParseSearch(%q): %v", q, err)
		}
		for key := range terms {
			if key != "" && key != "owner" && key != "name" {
				t.Errorf("ParseSearch(%q): key %q", q, key)
			}
		}
	})
}

func TestSearchTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-11-23": "2026-11-23T00:00:00Z", "2026-11-23T08:00:00Z": "2026-11-23T08:00:00Z", "2026-11-23t08:00:00+01:00": "2026-11-23T07:00:00Z", "yesterday": "", "": "", "2026-13-01": "",
	} {
		got, err := httpapi.SearchTime(map[string]string{"last_used_after": text}, "last_used_after")
		switch {
		case want == "" && fault.CodeOf(err) != fault.Invalid:
			t.Errorf("%q: got %v, %v, want a fault", text, got, err)
		case want != "" && (err != nil || got.UTC().Format(time.RFC3339) != want):
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
	if got, err := httpapi.SearchTime(nil, "last_used_after"); got != nil || err != nil {
		t.Errorf("absent: got %v, %v", got, err)
	}
}

func FuzzSearchTime(f *testing.F) {
	f.Add("2026-11-23")
	f.Add("2026-11-23T08:00:00.5+14:00")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := httpapi.SearchTime(map[string]string{"k": text}, "k")
		if (got == nil) == (err == nil) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	})
}
