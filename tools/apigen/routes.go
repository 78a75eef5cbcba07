package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// operation is what the source says about a route.
type operation struct {
	ID        string            `json:"id"`
	Summary   string            `json:"summary"`
	Query     []string          `json:"query,omitempty"` // sorted
	Request   schema            `json:"request,omitempty"`
	Responses map[string]schema `json:"responses,omitempty"` // by status; null: without a body
}

// document is the generated file.
type document struct {
	Operations map[string]*operation `json:"operations"` // by pattern
	Schemas    map[string]schema     `json:"schemas"`
}

// generate reads the source tree at root.
func generate(root string) ([]byte, error) {
	loaded, err := load(root)
	if err != nil {
		return nil, err
	}
	docs, err := readDocs(filepath.Join(root, "internal/sdk"))
	if err != nil {
		return nil, err
	}
	g := &generator{
		schemas: map[string]schema{}, docs: docs, answerers: map[string][]answerer{},
		bound: map[*types.TypeParam]types.Type{}, given: map[types.Object]types.Type{},
	}
	for _, s := range loaded {
		g.noteAnswerers(s)
	}
	doc := document{Operations: map[string]*operation{}, Schemas: g.schemas}
	for _, s := range loaded {
		g.source = s
		for _, file := range s.files {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					g.route(doc.Operations, call, nil)
					g.registration(doc.Operations, call)
				}
				return true
			})
		}
	}
	out, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode document: %w", err)
	}
	return append(out, '\n'), nil
}

type generator struct {
	*source
	schemas map[string]schema
	docs    map[string]string // of types and, as Type.field, of fields
	// answerers are the exported functions that get a response writer, by name. A handler calls one of another package
	// directly or through an interface.
	answerers map[string][]answerer
	// bound are the types that a generic function has for its parameters where it is called.
	bound map[*types.TypeParam]types.Type
	// given are the types of what a call passes, by the parameters of the function.
	given map[types.Object]types.Type
}

type answerer struct {
	in   *source
	decl *ast.FuncDecl
	f    *types.Func
}

const httpapi = module + "/coderd/httpapi"

func (g *generator) noteAnswerers(s *source) {
	if s.pkg.Path() == httpapi {
		return
	}
	for f, decl := range s.decls {
		if f.Exported() && takes(f, writesResponse) {
			g.answerers[f.Name()] = append(g.answerers[f.Name()], answerer{s, decl, f})
		}
	}
}

func writesResponse(v *types.Var) bool { return v.Type().String() == "net/http.ResponseWriter" }

// elsewhere returns the function of another package that answers for a call, if it is the only one of its name.
func (g *generator) elsewhere(call *ast.CallExpr) (answerer, bool) {
	id := callee(call.Fun)
	if id == nil {
		return answerer{}, false
	}
	f, ok := g.info.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil || !strings.HasPrefix(f.Pkg().Path(), module+"/coderd/") || g.decls[f.Origin()] != nil {
		return answerer{}, false
	}
	found := g.answerers[f.Name()]
	if !takes(f, writesResponse) || len(found) != 1 {
		return answerer{}, false
	}
	return found[0], true
}

// takes reports whether a function has a parameter of a kind.
func takes(f *types.Func, kind func(*types.Var) bool) bool {
	return slices.ContainsFunc(slices.Collect(f.Signature().Params().Variables()), kind)
}

// registration notes the routes that a function registers below a path which the caller names.
func (g *generator) registration(into map[string]*operation, call *ast.CallExpr) {
	id := callee(call.Fun)
	if id == nil {
		return
	}
	f, ok := g.info.Uses[id].(*types.Func)
	if !ok || g.decls[f.Origin()] == nil || !takes(f, registers) {
		return
	}
	known := g.passed(f.Origin(), []*ast.CallExpr{call}, nil)
	if len(known) == 0 {
		return
	}
	g.bind(id, f)
	ast.Inspect(g.decls[f.Origin()].Body, func(n ast.Node) bool {
		if inner, ok := n.(*ast.CallExpr); ok {
			g.route(into, inner, known)
		}
		return true
	})
}

func registers(v *types.Var) bool { return v.Type().String() == "*"+httpapi+".Mux" }

// bind notes the types with which a generic function is used.
func (g *generator) bind(id *ast.Ident, f *types.Func) {
	used, ok := g.info.Instances[id]
	if !ok {
		return
	}
	of := f.Origin().Signature().TypeParams()
	for i := range min(of.Len(), used.TypeArgs.Len()) {
		with := used.TypeArgs.At(i)
		if outer, ok := with.(*types.TypeParam); ok && g.bound[outer] != nil {
			with = g.bound[outer]
		}
		g.bound[of.At(i)] = with
	}
}

// route notes a call of Mux.Handle whose pattern is known at compile time.
func (g *generator) route(into map[string]*operation, call *ast.CallExpr, known constants) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < 3 || !g.calls(selector.Sel, httpapi, "Handle") {
		return
	}
	value := g.value(call.Args[0], known)
	if value == nil || value.Kind() != constant.String {
		return
	}
	pattern := constant.StringVal(value)
	op := &operation{ID: handlerName(call.Args[2]), Responses: map[string]schema{}}
	op.Summary = sentence(op.ID)
	g.follow(op, call.Args[2], nil, map[*types.Func]bool{})
	slices.Sort(op.Query)
	op.Query = slices.Compact(op.Query)
	into[pattern] = op
}

// handlerName returns the name of the handler: that of the method, or of the function which makes it.
func handlerName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	case *ast.CallExpr:
		return handlerName(e.Fun)
	case *ast.IndexExpr:
		return handlerName(e.X)
	case *ast.ParenExpr:
		return handlerName(e.X)
	}
	return ""
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// sentence turns a name such as createVersion into "Create version".
func sentence(name string) string {
	words := strings.Fields(wordStart.ReplaceAllString(name, "$1 $2"))
	for i, word := range words {
		if strings.ToUpper(word) != word {
			words[i] = strings.ToLower(word)
		}
	}
	text := []rune(strings.Join(words, " "))
	if len(text) > 0 {
		text[0] = unicode.ToUpper(text[0])
	}
	return string(text)
}

// calls reports whether an identifier is the function or method of that name in a package.
func (g *generator) calls(id *ast.Ident, path, name string) bool {
	f, ok := g.info.Uses[id].(*types.Func)
	return ok && f.Pkg() != nil && f.Pkg().Path() == path && f.Name() == name
}

// constants are the parameters of a function that a call sets to a constant.
type constants map[types.Object]constant.Value

// follow notes what a handler reads and answers: in its own body, in those of the functions of its package that it
// calls, and in those of other packages that it hands the response writer.
func (g *generator) follow(op *operation, node ast.Node, known constants, seen map[*types.Func]bool) {
	var called []*ast.CallExpr
	var named []*ast.Ident // functions
	reads := false
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			g.note(op, n, known)
			called = append(called, n)
		case *ast.Ident:
			if _, ok := g.info.Uses[n].(*types.Func); ok {
				named = append(named, n)
			}
		case *ast.SelectorExpr:
			of := g.info.TypeOf(n.X)
			reads = reads || n.Sel.Name == "Body" && of != nil && of.String() == "*net/http.Request"
		}
		return true
	})
	for _, id := range named {
		f := g.info.Uses[id].(*types.Func).Origin()
		decl := g.decls[f]
		if decl == nil || seen[f] {
			continue
		}
		seen[f] = true
		g.bind(id, f)
		g.follow(op, decl.Body, g.passed(f, called, known), seen)
	}
	here := g.source
	for _, call := range called {
		if other, ok := g.elsewhere(call); ok && !seen[other.f] {
			seen[other.f] = true
			g.source = other.in
			g.follow(op, other.decl.Body, nil, seen)
			g.source = here
		}
	}
	if reads && op.Request == nil { // without httpapi's functions: it is not JSON
		op.Request = schema{"type": "string", "format": "binary"}
	}
}

// passed returns the constants that the first call of f passes, and notes the types of all that it passes.
func (g *generator) passed(f *types.Func, calls []*ast.CallExpr, known constants) constants {
	out := constants{}
	for _, call := range calls {
		id := callee(call.Fun)
		if id == nil {
			continue
		}
		if of, ok := g.info.Uses[id].(*types.Func); !ok || of.Origin() != f {
			continue
		}
		parameters := f.Signature().Params()
		for i := range min(parameters.Len(), len(call.Args)) {
			g.given[parameters.At(i)] = g.info.TypeOf(call.Args[i])
			if value := g.value(call.Args[i], known); value != nil {
				out[parameters.At(i)] = value
			}
		}
		break
	}
	return out
}

func callee(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	case *ast.IndexExpr:
		return callee(e.X)
	}
	return nil
}

// value returns an expression's constant value, nil if it has none.
func (g *generator) value(e ast.Expr, known constants) constant.Value {
	if value := g.info.Types[e].Value; value != nil {
		return value
	}
	switch e := e.(type) {
	case *ast.Ident:
		return known[g.info.Uses[e]]
	case *ast.BinaryExpr:
		x, y := g.value(e.X, known), g.value(e.Y, known)
		if e.Op == token.ADD && x != nil && y != nil && x.Kind() == constant.String {
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return nil
}

// note notes a call of one of httpapi's functions, or of one that writes a status.
func (g *generator) note(op *operation, call *ast.CallExpr, known constants) {
	id := callee(call.Fun)
	if id == nil {
		return
	}
	f, ok := g.info.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil {
		return
	}
	args := call.Args
	switch path, name := f.Pkg().Path(), f.Name(); {
	case path == "net/http" && name == "WriteHeader" && len(args) == 1:
		if status := g.value(args[0], known); status != nil &&
			constant.Compare(status, tokenLess, constant.MakeInt64(http.StatusBadRequest)) {
			g.answer(op, status, nil)
		}
	case path == "net/http" && name == "ServeContent":
		g.answer(op, constant.MakeInt64(http.StatusOK), nil)
	case path == "net/url" && (name == "Get" || name == "Has") && len(args) == 1:
		if value := g.value(args[0], known); value != nil && value.Kind() == constant.String && g.isQuery(call) {
			op.Query = append(op.Query, constant.StringVal(value))
		}
	case path != httpapi:
	case name == "Read" || name == "ReadAnyText":
		g.request(op, args[2])
	case name == "ReadUpTo":
		g.request(op, args[3])
	case name == "Write":
		status := g.value(args[1], known)
		if status == nil {
			status = constant.MakeInt64(http.StatusOK)
		}
		g.answer(op, status, g.info.TypeOf(args[2]))
	case name == "WriteList":
		if next, ok := g.info.TypeOf(args[1]).Underlying().(*types.Signature); ok {
			g.answer(op, constant.MakeInt64(http.StatusOK), next.Results().At(0).Type())
		}
	case name == "QueryInt" || name == "QueryBool":
		if value := g.value(args[1], known); value != nil {
			op.Query = append(op.Query, constant.StringVal(value))
		}
	case name == "AfterID":
		op.Query = append(op.Query, "after_id")
	case name == "ParseSearch":
		op.Query = append(op.Query, "q")
	}
}

// isQuery reports whether a call is one of url.Values.Get on a request's query: r.URL.Query().Get or a variable.
func (g *generator) isQuery(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if name, ok := selector.X.(*ast.Ident); ok {
		return g.queries[g.info.Uses[name]]
	}
	return readsQuery(selector.X)
}

func (g *generator) request(op *operation, target ast.Expr) {
	of := g.info.TypeOf(target)
	if name, ok := target.(*ast.Ident); ok && types.IsInterface(of) && g.given[g.info.Uses[name]] != nil {
		of = g.given[g.info.Uses[name]]
	}
	if pointer, ok := of.Underlying().(*types.Pointer); ok && op.Request == nil {
		op.Request = g.schemaOf(pointer.Elem())
	}
}

// answer notes an answer; of a status, the first counts: it is the handler's own. A nil type means no body.
func (g *generator) answer(op *operation, status constant.Value, of types.Type) {
	n, _ := constant.Int64Val(status)
	key := strconv.FormatInt(n, 10)
	if _, known := op.Responses[key]; known {
		return
	}
	op.Responses[key] = nil
	if of != nil {
		op.Responses[key] = g.schemaOf(of)
	}
}
