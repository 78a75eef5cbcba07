package layout_test

import (
	"os"
	"strings"
	"testing"
)

// TestLayersAreDrawn compares the layers that docs/architecture.md draws, of the server's packages, with what they
// import: each knows only packages that are drawn below it. Each package has a line in the table there.
func TestLayersAreDrawn(t *testing.T) {
	t.Parallel()
	section := architecture(t, "The server's packages")
	apart := map[string]bool{"coderdtest": true, "backup": true} // they are no part of a running server
	compareLayers(t, layersIn(section), "coderd/", apart)
	seen := map[string]bool{}
	for _, p := range list(t, "./coderd/...") {
		name := folderBelow("coderd/", p.ImportPath)
		if name != "" && !seen[name] && !strings.HasSuffix(p.ImportPath, "test") &&
			!strings.Contains(section, "\n| `"+name+"` |") {
			t.Errorf("coderd/%s has no line in the table", name)
		}
		seen[name] = true
	}
}

// TestPartsAreDrawn does the same with the folders of the program.
func TestPartsAreDrawn(t *testing.T) {
	t.Parallel()
	apart := map[string]bool{"e2e": true, "bench": true, "packaging": true} // they test and measure the program
	compareLayers(t, layersIn(architecture(t, "Parts")), "", apart)
}

// architecture returns a section of docs/architecture.md.
func architecture(t *testing.T, title string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatalf("docs/architecture.md has no section %s", title)
	}
	return section
}

// layersIn returns the layer of each name that a section draws, from the top.
func layersIn(section string) map[string]int {
	layer, depth := map[string]int{}, 0
	for line := range strings.Lines(section) {
		if drawn, ok := strings.CutPrefix(line, "    "); ok {
			depth++
			for name := range strings.FieldsSeq(drawn) {
				layer[name] = depth
			}
		}
	}
	return layer
}

// compareLayers compares layers with what the folders below another one import. Packages for tests and those of apart
// are not drawn.
func compareLayers(t *testing.T, layer map[string]int, parent string, apart map[string]bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, p := range list(t, "./"+parent+"...") {
		name := folderBelow(parent, p.ImportPath)
		if name == "" || apart[name] || strings.HasSuffix(p.ImportPath, "test") {
			continue
		}
		seen[name] = true
		if layer[name] == 0 {
			t.Errorf("%s%s is not drawn", parent, name)
		}
		for _, imported := range p.Imports {
			if other := folderBelow(parent, imported); other != "" && other != name && layer[other] <= layer[name] {
				t.Errorf("%s imports %s%s, which is not drawn below %s%s", p.ImportPath, parent, other, parent, name)
			}
		}
	}
	for name := range layer {
		if !seen[name] {
			t.Errorf("%s%s is drawn and does not exist", parent, name)
		}
	}
}

// folderBelow returns the name of the folder directly below another one that a package is in, or "".
func folderBelow(parent, path string) string {
	name, ok := strings.CutPrefix(path, module+"/"+parent)
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, "/")
	return name
}
