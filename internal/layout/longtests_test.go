package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// longest is how many lines a function of a test may have: what one sees at once of a table and of what it checks.
const longest = 80

// longTests are the functions of tests that are better as they are, and why. A name is that of the package's folder and of the function.
var longTests = map[string]string{}

// TestTestsAreShort checks that no function of a test is too long to be read at once. Cases are a table, or subtests in functions of their own, and
// what several of them need is a helper.
func TestTestsAreShort(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	files := 0
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "build" || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := 1 + set.Position(f.End()).Line - set.Position(f.Pos()).Line
			function := filepath.ToSlash(dir) + " " + f.Name.Name
			_, excused := longTests[function]
			seen[function] = seen[function] || lines > longest
			if lines > longest && !excused {
				t.Errorf("%s: %s has %d lines: make its cases a table, or subtests in functions of their own", set.Position(f.Pos()), f.Name.Name, lines)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files of tests were read", files)
	}
	for function := range longTests {
		if !seen[function] {
			t.Errorf("%s is not long, or does not exist: take it out of longTests", function)
		}
	}
}
