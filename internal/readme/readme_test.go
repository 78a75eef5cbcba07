package readme_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/readme"
)

func TestParse(t *testing.T) {
	t.Parallel()
	type parsed struct {
		readme.Metadata
		Text string
	}
	none := readme.Metadata{}
	for name, test := range map[string]struct {
		text string
		want parsed
	}{
		"all": {
			"---\ndisplay_name: Go and Rust\ndescription: >\n  A machine\n  for both.\nicon: /icon/go.svg\ntags: [go, rust]\n" +
				"maintainer_github: ada\n---\n\n# Go\n",
			parsed{readme.Metadata{
				DisplayName: "Go and Rust", Description: "A machine for both.", Icon: "/icon/go.svg", Tags: []string{"go", "rust"},
			}, "# Go\n"},
		},
		"of Windows":       {"\ufeff---\r\nicon: /icon/go.svg\r\n---\r\n# Go\r\n", parsed{readme.Metadata{Icon: "/icon/go.svg"}, "# Go\n"}},
		"empty":            {"---\n---\n# Go\n", parsed{none, "# Go\n"}},
		"no front matter":  {"# Go\n\n---\nicon: x\n---\n", parsed{none, "# Go\n\n---\nicon: x\n---\n"}},
		"no end":           {"---\nicon: x\n", parsed{none, "---\nicon: x\n"}},
		"no README":        {"", parsed{none, ""}},
		"not YAML":         {"---\n\ticon: [\n---\n# Go\n", parsed{none, "# Go\n"}},
		"not a mapping":    {"---\n- icon\n---\n# Go\n", parsed{none, "# Go\n"}},
		"value of a shape": {"---\nicon: {a: b}\n---\n# Go\n", parsed{none, "# Go\n"}},
		"too large":        {"---\nicon: x\n" + strings.Repeat("# ", readme.Limit) + "\n---\n# Go\n", parsed{none, "# Go\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, text := readme.Parse(test.text)
			if diff := cmp.Diff(test.want, parsed{m, text}); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("---\nicon: x\n---\n# Go\n")
	f.Add("---\na: &a [*a]\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, rest := readme.Parse(text); len(rest) > len(text) {
			t.Errorf("Parse(%q) made the text longer: %q", text, rest)
		}
	})
}
