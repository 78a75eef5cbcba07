package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// declared holds a package's relevant declarations, in the order of its files.
type declared struct {
	order  []string
	types  map[string]*ast.TypeSpec
	docs   map[string]string
	values map[string][]string // of a string type's constants
}

// collect reads the package in a folder, without its tests.
func collect(dir string) (*declared, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go")) // sorted
	if err != nil {
		return nil, err
	}
	d := &declared{types: map[string]*ast.TypeSpec{}, docs: map[string]string{}, values: map[string][]string{}}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				d.add(gen)
			}
		}
	}
	return d, nil
}

func (d *declared) add(gen *ast.GenDecl) {
	for _, spec := range gen.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if !spec.Name.IsExported() || spec.TypeParams != nil {
				continue
			}
			d.order = append(d.order, spec.Name.Name)
			d.types[spec.Name.Name] = spec
			doc := spec.Doc
			if doc == nil {
				doc = gen.Doc
			}
			d.docs[spec.Name.Name] = doc.Text()
		case *ast.ValueSpec:
			of, ok := spec.Type.(*ast.Ident)
			if !ok {
				continue
			}
			for _, value := range spec.Values {
				if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					d.values[of.Name] = append(d.values[of.Name], lit.Value)
				}
			}
		}
	}
}

// writeTypes writes every exported type that travels as JSON: structures with named fields, maps, and closed sets of
// strings.
func writeTypes(out *bytes.Buffer, dir string) error {
	d, err := collect(dir)
	if err != nil {
		return err
	}
	for _, name := range d.order {
		switch of := d.types[name].Type.(type) {
		case *ast.StructType:
			body, extends, err := d.fields(of)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if body == "" && extends == "" {
				continue // does not travel as JSON
			}
			writeDoc(out, d.docs[name])
			fmt.Fprintf(out, "export interface %s%s {\n%s}\n", name, extends, body)
		case *ast.MapType:
			kind, err := d.record(of.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			writeDoc(out, d.docs[name])
			fmt.Fprintf(out, "export type %s = %s;\n", name, kind)
		case *ast.Ident:
			if values := d.values[name]; of.Name == "string" && len(values) > 0 {
				writeDoc(out, d.docs[name])
				fmt.Fprintf(out, "export type %s = %s;\n", name, strings.Join(values, " | "))
			}
		}
	}
	return nil
}

func writeDoc(out *bytes.Buffer, doc string) {
	out.WriteString("\n")
	for line := range strings.Lines(doc) {
		fmt.Fprintf(out, "// %s\n", strings.TrimRight(line, "\n"))
	}
}

// fields returns a structure's fields as TypeScript, and the structures that it extends.
func (d *declared) fields(of *ast.StructType) (body, extends string, err error) {
	var lines strings.Builder
	for _, field := range of.Fields.List {
		if len(field.Names) == 0 {
			if embedded, ok := field.Type.(*ast.Ident); ok && embedded.IsExported() {
				if extends += ", "; extends == ", " {
					extends = " extends "
				}
				extends += embedded.Name
			}
			continue
		}
		if field.Tag == nil {
			continue
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			return "", "", err
		}
		tag := reflect.StructTag(text).Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if name == "" || name == "-" {
			continue
		}
		kind, err := d.typescript(field.Type)
		if err != nil {
			return "", "", fmt.Errorf("field %s: %w", name, err)
		}
		optional := ""
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			optional = "?"
		}
		comment := ""
		if field.Comment != nil {
			comment = " // " + strings.TrimSpace(strings.ReplaceAll(field.Comment.Text(), "\n", " "))
		}
		fmt.Fprintf(&lines, "  %s%s: %s;%s\n", name, optional, kind, comment)
	}
	return lines.String(), extends, nil
}

// scalars maps types of other packages to the TypeScript types of their JSON.
var scalars = map[string]string{
	"uuid.UUID": "string", "time.Time": "string", "time.Duration": "number", // nanoseconds
	"json.RawMessage": "unknown",
	"string":          "string", "bool": "boolean", "any": "unknown",
	"int": "number", "int16": "number", "int32": "number", "int64": "number", "uint16": "number", "uint32": "number", "uint64": "number",
	"float32": "number", "float64": "number",
}

func (d *declared) typescript(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.Ident:
		if kind, ok := scalars[e.Name]; ok {
			return kind, nil
		}
		if _, ok := d.types[e.Name]; ok {
			return e.Name, nil
		}
	case *ast.SelectorExpr:
		if p, ok := e.X.(*ast.Ident); ok {
			if kind, ok := scalars[p.Name+"."+e.Sel.Name]; ok {
				return kind, nil
			}
		}
	case *ast.StarExpr:
		kind, err := d.typescript(e.X)
		return kind + " | null", err
	case *ast.ArrayType:
		if of, ok := e.Elt.(*ast.Ident); ok && of.Name == "byte" {
			return "string", nil // base64
		}
		return d.list(e.Elt)
	case *ast.MapType:
		return d.record(e.Value)
	case *ast.IndexExpr: // the sdk's own List and Map
		switch of, _ := e.X.(*ast.Ident); {
		case of != nil && of.Name == "List":
			return d.list(e.Index)
		case of != nil && of.Name == "Map":
			return d.record(e.Index)
		}
	}
	return "", fmt.Errorf("no TypeScript for %T %v", e, e)
}

func (d *declared) list(of ast.Expr) (string, error) {
	kind, err := d.typescript(of)
	if strings.Contains(kind, " ") {
		kind = "(" + kind + ")"
	}
	return kind + "[]", err
}

func (d *declared) record(of ast.Expr) (string, error) {
	kind, err := d.typescript(of)
	return "Record<string, " + kind + ">", err
}
