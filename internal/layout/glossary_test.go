package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// meshRooms are the folders of the mesh: docs/glossary.md explains the exported types of all packages in and below
// them, except those for tests and internal ones.
var meshRooms = []string{"tailnet", "coordinator", "sshmux", "meshclient"}

// TestTypesOfTheMeshAreExplained compares the glossary's table with the packages, in both directions.
func TestTypesOfTheMeshAreExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Types of the mesh\n")
	if !found {
		t.Fatal("docs/glossary.md has no section Types of the mesh")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	explained := map[string]bool{} // whether a package has it
	word := regexp.MustCompile("`([A-Z]\\w*)`")
	for line := range strings.Lines(section) {
		if term, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			for _, m := range word.FindAllStringSubmatch(term, -1) {
				explained[m[1]] = false
			}
		}
	}
	for _, dir := range meshPackages(t) {
		for _, name := range exportedTypes(t, filepath.Join("../..", dir)) {
			if _, ok := explained[name]; !ok {
				t.Errorf("docs/glossary.md does not explain %s.%s: add a row to Types of the mesh, or take a word that is there", dir, name)
			}
			explained[name] = true
		}
	}
	for name, exists := range explained {
		if !exists {
			t.Errorf("docs/glossary.md explains %s, which no package of the mesh exports", name)
		}
	}
}

// meshPackages returns the folders of the packages of meshRooms.
func meshPackages(t *testing.T) (dirs []string) {
	t.Helper()
	for _, room := range meshRooms {
		for _, p := range list(t, "./"+room+"/...") {
			dir := strings.TrimPrefix(p.ImportPath, module+"/")
			if !strings.HasSuffix(dir, "test") && !slices.Contains(strings.Split(dir, "/"), "internal") {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// exportedTypes returns the exported types of the package in a folder, for any platform, without its tests.
func exportedTypes(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no Go files (%v)", dir, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.TYPE {
				continue
			}
			for _, spec := range group.Specs {
				if name := spec.(*ast.TypeSpec).Name.Name; ast.IsExported(name) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
