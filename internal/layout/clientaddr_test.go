package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOneClientAddr keeps the decision which address a request comes from in one package: what reads the peer's address, or what proxies say, by
// itself sees the reverse proxy, or what a client claims.
func TestOneClientAddr(t *testing.T) {
	t.Parallel()
	seen := 0
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for at := range peerAddresses(file) {
			if seen++; filepath.Base(filepath.Dir(name)) != "clientaddr" {
				t.Errorf("%s: use internal/clientaddr", files.Position(at))
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d places, %v", seen, err)
	}
}

// peerAddresses returns where a file reads the address of a request's peer, or of the client that a proxy names. The method RemoteAddr of a
// connection is something else, and so is a header that is deleted or set.
func peerAddresses(file *ast.File) iter.Seq[token.Pos] {
	return func(yield func(token.Pos) bool) {
		methods := map[ast.Expr]bool{}
		for n := range ast.Preorder(file) {
			switch n := n.(type) {
			case *ast.CallExpr:
				methods[n.Fun] = true
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Get", "Values"}, f.Sel.Name) && len(n.Args) == 1 && namesClient(n.Args[0]) && !yield(n.Pos()) {
					return
				}
			case *ast.SelectorExpr:
				if n.Sel.Name == "RemoteAddr" && !methods[n] && !yield(n.Pos()) {
					return
				}
			}
		}
	}
}

// namesClient reports whether an expression is the name of a header in which proxies name the client, written out.
func namesClient(e ast.Expr) bool {
	text, ok := e.(*ast.BasicLit)
	if !ok {
		return false
	}
	switch strings.ToLower(strings.Trim(text.Value, "\"`")) {
	case "x-forwarded-for", "x-real-ip", "forwarded", "true-client-ip", "cf-connecting-ip":
		return true
	}
	return false
}
