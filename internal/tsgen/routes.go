package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/codermesh/codermesh/"

// routes reads the patterns of every call of Handle(pattern, permission, handler) below a folder.
func (s source) routes(below string) (found []string, err error) {
	err = fs.WalkDir(os.DirFS(s.root), below, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		more, err := s.routesOf(dir)
		found = append(found, more...)
		return err
	})
	return found, err
}

func (s source) routesOf(dir string) (routes []string, err error) {
	packages, err := s.parse(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		scope := constants(p, "")
		for _, name := range sortedKeys(p.Files) {
			file := p.Files[name]
			imported := maps.Clone(scope)
			for _, spec := range file.Imports {
				if err := s.addImported(imported, spec); err != nil {
					return nil, err
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 3 {
					return true
				}
				if method, ok := call.Fun.(*ast.SelectorExpr); !ok || method.Sel.Name != "Handle" {
					return true
				}
				pattern, known := fold(call.Args[0], imported)
				switch {
				case known && strings.Contains(pattern, " /api/"):
					routes = append(routes, pattern)
				case !known && !isLoop(call.Args[0]):
					err = errors.Join(err, fmt.Errorf("%s: the pattern of a route is no constant", name))
				}
				return true
			})
		}
	}
	return routes, err
}

// isLoop reports whether a pattern is a plain variable: the few that are registered in a loop are none of the API.
func isLoop(e ast.Expr) bool { _, ok := e.(*ast.Ident); return ok }

// constants are a package's string constants, those inside functions too, by name with a prefix.
func constants(p *ast.Package, prefix string) map[string]string {
	found := map[string]string{}
	ast.Inspect(p, func(n ast.Node) bool {
		gen, ok := n.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			return true
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				if i < len(value.Values) {
					if text, ok := fold(value.Values[i], found); ok {
						found[prefix+name.Name] = text
					}
				}
			}
		}
		return true
	})
	return found
}

// addImported adds the constants of a package of ours that a file imports.
func (s source) addImported(scope map[string]string, spec *ast.ImportSpec) error {
	path, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return err
	}
	dir, ours := strings.CutPrefix(path, module)
	if !ours {
		return nil
	}
	packages, err := s.parse(dir)
	if err != nil {
		return err
	}
	for name, p := range packages {
		if spec.Name != nil {
			name = spec.Name.Name
		}
		maps.Copy(scope, constants(p, name+"."))
	}
	return nil
}

// fold is the value of an expression of string constants.
func fold(e ast.Expr, scope map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		text, ok := scope[e.Name]
		return text, ok
	case *ast.SelectorExpr:
		if p, ok := e.X.(*ast.Ident); ok {
			text, ok := scope[p.Name+"."+e.Sel.Name]
			return text, ok
		}
	case *ast.BinaryExpr:
		left, ok := fold(e.X, scope)
		right, also := fold(e.Y, scope)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
