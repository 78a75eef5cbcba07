package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatternsAreLazy holds that no package of the programs compiles a regular expression before main: each command, and each process that
// confines a step of a build, would wait for it.
func TestPatternsAreLazy(t *testing.T) {
	t.Parallel()
	const root = "../.."
	lazy := 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch rel, _ := filepath.Rel(root, name); rel {
			case ".git", "build", "tools", "scripts", "bench", "site": // not linked
				return fs.SkipDir
			}
			if strings.HasSuffix(name, "test") || entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			vars, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			ast.Inspect(vars, func(n ast.Node) bool {
				if _, later := n.(*ast.FuncLit); later {
					return false
				}
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				switch pkg, _ := f.X.(*ast.Ident); {
				case pkg == nil:
				case pkg.Name == "lazyregexp" && f.Sel.Name == "New":
					lazy++
				case pkg.Name == "regexp" && f.Sel.Name == "MustCompile":
					t.Errorf("%s: use internal/lazyregexp", files.Position(call.Pos()))
				}
				return true
			})
		}
		return nil
	})
	if err != nil || lazy == 0 {
		t.Fatalf("%d lazy patterns, %v", lazy, err)
	}
}
