package starters_test

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/starters"
)

func TestStartersAreComplete(t *testing.T) {
	t.Parallel()
	list := starters.List()
	if len(list) != 5 || !slices.IsSortedFunc(list, func(a, b starters.Starter) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatalf("List: %d starters, want 5, sorted", len(list))
	}
	for _, want := range list {
		files, got, ok := starters.Get(want.Name)
		if !ok || got.Name != want.Name || got.Description == "" || got.DisplayName == "" || got.Icon == "" || len(got.Tags) == 0 {
			t.Errorf("Get(%q): %+v, %v", want.Name, got, ok)
			continue
		}
		if _, err := os.Stat("../../site/public" + want.Icon); err != nil {
			t.Errorf("%s: the server does not have its icon: %v", want.Name, err)
		}
		for _, name := range []string{"main.tf", "README.md"} {
			text, err := fs.ReadFile(files, name)
			if err != nil || strings.TrimSpace(string(text)) == "" {
				t.Errorf("%s: %s: %v", want.Name, name, err)
			}
		}
	}
	if _, _, ok := starters.Get("../process"); ok {
		t.Error("Get found a starter outside of the list")
	}
}
