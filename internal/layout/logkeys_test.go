package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// logged maps slog's methods to the index of the first key among their arguments.
var logged = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "Log": 3, "With": 0,
}

var keyRow = regexp.MustCompile("(?m)^\\| `(\\w+)`(?:, `(\\w+)`)*")

// TestLogKeys: log lines use only keys that docs/glossary.md lists, so that each key has one meaning.
func TestLogKeys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "## Log keys")
	if !ok {
		t.Fatal("docs/glossary.md has no section of log keys")
	}
	listed := map[string]struct{}{}
	for _, row := range keyRow.FindAllString(table, -1) {
		for _, name := range quoted.FindAllStringSubmatch(row, -1) {
			listed[name[1]] = struct{}{}
		}
	}
	err = filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && (base == "node_modules" || base == ".git" || base == "build" || base == "testdata" || strings.HasSuffix(base, "test")) {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isLogger(method.X) {
				return true
			}
			first, ok := logged[method.Sel.Name]
			for i := first; ok && i < len(call.Args); i += 2 {
				literal, isText := call.Args[i].(*ast.BasicLit)
				if !isText {
					break // attributes, or a list of them
				}
				key, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Error(err)
				}
				if _, ok := listed[key]; !ok {
					t.Errorf("%s logs %q, which docs/glossary.md does not list: use a key that is there, or add it", set.Position(literal.Pos()), key)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isLogger reports whether an expression is named like a logger.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log" || e.Name == "logger"
	case *ast.SelectorExpr:
		return e.Sel.Name == "log" || e.Sel.Name == "logger" || e.Sel.Name == "Logger"
	}
	return false
}
