package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLocksAreListed compares docs/locks.md with the mutexes in the tree: each has a row there, and each row has its mutex.
func TestLocksAreListed(t *testing.T) {
	t.Parallel()
	found := mutexes(t, "../..")
	text, err := os.ReadFile("../../docs/locks.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := listedLocks(string(text))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, ok := listed[name]; !ok {
			t.Errorf("%s: docs/locks.md does not list the mutex %s", found[name], name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := found[name]; !ok {
			t.Errorf("docs/locks.md lists %s, which is not a mutex in the tree", name)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// listedLocks reads tables whose first column has types or functions, and whose second has the names of their locks.
func listedLocks(page string) map[string]struct{} {
	names := make(map[string]struct{})
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, where := range quoted.FindAllStringSubmatch(cells[1], -1) {
			for _, lock := range quoted.FindAllStringSubmatch(cells[2], -1) {
				names[where[1]+"."+lock[1]] = struct{}{}
			}
		}
	}
	return names
}

// mutexes finds the fields and variables of type sync.Mutex and sync.RWMutex outside of tests and of packages for tests, whose names end in
// "test". A field is named by its type, a variable in a function by the function, an embedded mutex of a named type "Mutex", and a mutex in
// an anonymous struct by the field whose type the struct is. The value is the position.
func mutexes(t *testing.T, root string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if base == "node_modules" || base == ".git" || base == "build" || base == "testdata" || strings.HasSuffix(base, "test") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			collect(decl, filepath.ToSlash(dir), func(lock string, at token.Pos) {
				found[lock] = path.Join(filepath.ToSlash(dir), base) + ":" + strings.SplitN(set.Position(at).String(), ":", 3)[1]
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("no mutex found: the search is broken")
	}
	return found
}

// collect reports the mutexes below node, whose names begin with prefix.
func collect(node ast.Node, prefix string, report func(lock string, at token.Pos)) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				collect(n.Body, prefix+"."+funcName(n), report)
			}
			return false
		case *ast.TypeSpec:
			collect(n.Type, prefix+"."+n.Name.Name, report)
			return false
		case *ast.ValueSpec:
			for _, name := range n.Names {
				named(n.Type, prefix+"."+name.Name, report)
			}
			for _, value := range n.Values {
				collect(value, prefix, report)
			}
			return false
		case *ast.Field:
			if len(n.Names) == 0 && isMutex(n.Type) {
				report(prefix+".Mutex", n.Pos())
			}
			for _, name := range n.Names {
				named(n.Type, prefix+"."+name.Name, report)
			}
			return false
		}
		return true
	})
}

// named reports the mutexes of a field or variable.
func named(typ ast.Expr, name string, report func(lock string, at token.Pos)) {
	structure, ok := typ.(*ast.StructType)
	switch {
	case typ == nil:
	case isMutex(typ):
		report(name, typ.Pos())
	case ok && slices.ContainsFunc(structure.Fields.List, func(f *ast.Field) bool { return len(f.Names) == 0 && isMutex(f.Type) }):
		report(name, typ.Pos())
	default:
		collect(typ, name, report)
	}
}

func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

func isMutex(typ ast.Expr) bool {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	selector, ok := typ.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Mutex" && selector.Sel.Name != "RWMutex" {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == "sync"
}
