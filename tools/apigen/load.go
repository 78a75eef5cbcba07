package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/codermesh/codermesh/v2"

// source is one type-checked package.
type source struct {
	pkg   *types.Package
	info  *types.Info
	files []*ast.File
	decls map[*types.Func]*ast.FuncDecl
	// queries are variables that hold the query of a request.
	queries map[types.Object]bool
}

// load type-checks the server's packages. Their imports come from the compiler's export data.
func load(root string) ([]*source, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}", "./coderd/...")
	list.Dir = root
	var problems bytes.Buffer
	list.Stderr = &problems
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w: %s", err, problems.Bytes())
	}
	exports := map[string]string{}
	var ours [][]string
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("list packages: cannot read %q", line)
		}
		exports[fields[0]] = fields[1]
		if strings.HasPrefix(fields[0], module+"/coderd") && !strings.Contains(fields[0], "test") && fields[3] != "" {
			ours = append(ours, fields)
		}
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(exports[path])
	})
	var loaded []*source
	for _, fields := range ours {
		s, err := check(set, imports, fields[0], fields[2], strings.Fields(fields[3]))
		if err != nil {
			return nil, err
		}
		loaded = append(loaded, s)
	}
	return loaded, nil
}

func check(set *token.FileSet, imports types.Importer, path, dir string, names []string) (*source, error) {
	s := &source{decls: map[*types.Func]*ast.FuncDecl{}, queries: map[types.Object]bool{}, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Instances: map[*ast.Ident]types.Instance{},
	}}
	for _, name := range names {
		file, err := parser.ParseFile(set, filepath.Join(dir, name), nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, file)
	}
	config := types.Config{Importer: imports}
	var err error
	if s.pkg, err = config.Check(path, set, s.files, s.info); err != nil {
		return nil, fmt.Errorf("check %s: %w", path, err)
	}
	for _, file := range s.files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				if object, ok := s.info.Defs[f.Name].(*types.Func); ok {
					s.decls[object] = f
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == len(assign.Rhs) {
				for i, value := range assign.Rhs {
					if name, ok := assign.Lhs[i].(*ast.Ident); ok && readsQuery(value) && s.info.Defs[name] != nil {
						s.queries[s.info.Defs[name]] = true
					}
				}
			}
			return true
		})
	}
	return s, nil
}

// readsQuery reports whether an expression is the query of a request: r.URL.Query().
func readsQuery(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && callee(call.Fun) != nil && callee(call.Fun).Name == "Query"
}
