package layout_test

import (
	"os"
	"strings"
	"testing"
)

// TestLayersAreDrawn compares the layers that docs/architecture.md draws of the server's packages with what they import: each knows only
// packages that are drawn below it. Each package has a line in the table there.
func TestLayersAreDrawn(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## The server's packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("docs/architecture.md has no section on the server's packages")
	}
	layer, depth := map[string]int{}, 0
	for line := range strings.Lines(section) {
		if drawn, ok := strings.CutPrefix(line, "    "); ok {
			depth++
			for name := range strings.FieldsSeq(drawn) {
				layer[name] = depth
			}
		}
	}
	apart := map[string]bool{"coderdtest": true, "backup": true} // they are no part of a running server
	seen := map[string]bool{}
	for _, p := range list(t, "./coderd/...") {
		name := serverFolder(p.ImportPath)
		if name == "" || strings.HasSuffix(p.ImportPath, "test") {
			continue
		}
		if !seen[name] && !strings.Contains(section, "\n| `"+name+"` |") {
			t.Errorf("coderd/%s has no line in the table", name)
		}
		seen[name] = true
		if apart[name] {
			continue
		}
		if layer[name] == 0 {
			t.Errorf("coderd/%s is not drawn", name)
		}
		for _, imported := range p.Imports {
			if other := serverFolder(imported); other != "" && other != name && layer[other] <= layer[name] {
				t.Errorf("%s imports coderd/%s, which is not drawn below coderd/%s", p.ImportPath, other, name)
			}
		}
	}
	for name := range layer {
		if !seen[name] {
			t.Errorf("coderd/%s is drawn and does not exist", name)
		}
	}
}

// serverFolder returns the name of the folder below coderd that a package is in, or "".
func serverFolder(path string) string {
	name, _ := strings.CutPrefix(path, module+"/coderd/")
	if name == path {
		return ""
	}
	name, _, _ = strings.Cut(name, "/")
	return name
}
