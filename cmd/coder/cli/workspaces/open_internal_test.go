package workspaces

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestSchemesOfTheDashboard: the command line opens, and gives tokens to, the addresses that the dashboard does.
func TestSchemesOfTheDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../site/src/lib/links.ts")
	if err != nil {
		t.Fatal(err)
	}
	for name, own := range map[string][]string{"hostSchemes": hostSchemes, "programSchemes": programSchemes} {
		list := regexp.MustCompile(`const ` + name + ` = new Set\(\[([^\]]*)\]`).FindSubmatch(text)
		if list == nil {
			t.Fatalf("the dashboard has no %s", name)
		}
		var theirs []string
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(list[1], -1) {
			theirs = append(theirs, string(m[1]))
		}
		if !slices.Equal(own, theirs) {
			t.Errorf("%s: %q here, %q in the dashboard", name, own, theirs)
		}
	}
}
