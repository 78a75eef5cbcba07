package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// change is one small fault.
type change struct {
	file, old, with, context string
	line                     int
	text                     []byte // of the file with the fault
}

// swaps are operators, and what replaces them.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.SHL: token.SHR, token.SHR: token.SHL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
	token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK,
}

// changes returns all small faults of a file. A generated one has none.
func changes(file string) ([]change, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(parsed) {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	var found []change
	add := func(at token.Pos, old, with string) {
		p := files.Position(at)
		found = append(found, change{file, old, with, strings.TrimSpace(lines[p.Line-1]), p.Line,
			slices.Concat(text[:p.Offset], []byte(with), text[p.Offset+len(old):])})
	}
	swap := func(at token.Pos, old token.Token) {
		if with, ok := swaps[old]; ok {
			add(at, old.String(), with.String())
		}
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				return !reports(n)
			case *ast.BinaryExpr:
				if !isErr(n.X) { // whether a call failed: what is wrong there, every test notices
					swap(n.OpPos, n.Op)
				}
			case *ast.AssignStmt:
				swap(n.TokPos, n.Tok)
			case *ast.IncDecStmt:
				swap(n.TokPos, n.Tok)
			case *ast.BranchStmt:
				if n.Label == nil {
					swap(n.TokPos, n.Tok)
				}
			case *ast.UnaryExpr:
				if n.Op == token.NOT {
					add(n.OpPos, "!", "")
				}
			case *ast.Ident:
				if n.Name == "true" || n.Name == "false" {
					add(n.Pos(), n.Name, strconv.FormatBool(n.Name == "false"))
				}
			case *ast.BasicLit:
				if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
					add(n.Pos(), n.Value, strconv.Itoa(v+1))
				}
			}
			return true
		})
	}
	return found, nil
}

// reports says whether a call only tells something to people: a line of a log, or the text of an error.
func reports(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch f.Sel.Name {
	case "Errorf", "New", "Debug", "Info", "Warn", "Error", "Log":
		return true
	}
	return false
}

func isErr(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && (id.Name == "err" || strings.HasSuffix(id.Name, "Err"))
}
