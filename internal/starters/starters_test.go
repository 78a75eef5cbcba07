package starters_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/starters"
)

func TestStartersAreComplete(t *testing.T) {
	t.Parallel()
	products, err := os.ReadFile("../../site/icons.ts")
	if err != nil {
		t.Fatal(err)
	}
	list := starters.List()
	if len(list) != 17 || !slices.IsSortedFunc(list, func(a, b starters.Starter) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatalf("List: %d starters, want 17, sorted", len(list))
	}
	for _, want := range list {
		files, got, ok := starters.Get(want.Name)
		if !ok || got.Name != want.Name || got.Description == "" || got.DisplayName == "" || got.Icon == "" || len(got.Tags) == 0 {
			t.Errorf("Get(%q): %+v, %v", want.Name, got, ok)
			continue
		}
		drawn, _ := filepath.Glob("../../site/public" + want.Icon)
		if name := strings.TrimSuffix(path.Base(want.Icon), ".svg"); len(drawn) == 0 && !strings.Contains(string(products), "\n  "+name+": [si.") {
			t.Errorf("%s: the server does not have its icon %s", want.Name, want.Icon)
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
