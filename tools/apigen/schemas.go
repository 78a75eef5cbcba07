package main

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

const tokenLess = token.LSS

// schema is a JSON schema.
type schema map[string]any

const sdk = module + "/internal/sdk"

// scalars are the types of other packages by their JSON.
var scalars = map[string]schema{
	"github.com/google/uuid.UUID":     {"type": "string", "format": "uuid"},
	"time.Time":                       {"type": "string", "format": "date-time"},
	"time.Duration":                   {"type": "integer", "format": "int64", "description": "nanoseconds"},
	"encoding/json.RawMessage":        {},
	"net/netip.Addr":                  {"type": "string"},
	"net/netip.AddrPort":              {"type": "string"},
	module + "/internal/secret.Token": {"type": "string"},
}

// schemaOf returns the schema of a type. Structures and enums of the public contract become components.
func (g *generator) schemaOf(t types.Type) schema {
	switch t := t.(type) {
	case *types.Alias:
		return g.schemaOf(types.Unalias(t))
	case *types.Pointer:
		return nullable(g.schemaOf(t.Elem()))
	case *types.Named:
		return g.named(t)
	case *types.Basic:
		return basic(t)
	case *types.Slice:
		if e, ok := t.Elem().(*types.Basic); ok && e.Kind() == types.Byte {
			return schema{"type": "string", "format": "byte"}
		}
		return schema{"type": "array", "items": g.schemaOf(t.Elem())}
	case *types.Array:
		return schema{"type": "array", "items": g.schemaOf(t.Elem())}
	case *types.Map:
		return schema{"type": "object", "additionalProperties": g.schemaOf(t.Elem())}
	case *types.Struct:
		return g.object(t, "")
	case *types.TypeParam:
		if with := g.bound[t]; with != nil {
			return g.schemaOf(with)
		}
	}
	return schema{} // an interface, or a type parameter: any value
}

func nullable(of schema) schema {
	if len(of) == 0 {
		return of
	}
	return schema{"anyOf": []schema{of, {"type": "null"}}}
}

func basic(t *types.Basic) schema {
	switch info := t.Info(); {
	case info&types.IsBoolean != 0:
		return schema{"type": "boolean"}
	case info&types.IsInteger != 0:
		return schema{"type": "integer"}
	case info&types.IsFloat != 0:
		return schema{"type": "number"}
	case info&types.IsString != 0:
		return schema{"type": "string"}
	}
	return schema{}
}

func (g *generator) named(t *types.Named) schema {
	object := t.Obj()
	path := ""
	if object.Pkg() != nil {
		path = object.Pkg().Path()
	}
	if known, ok := scalars[path+"."+object.Name()]; ok {
		return known
	}
	if path != sdk || t.TypeArgs().Len() > 0 {
		return g.schemaOf(t.Underlying())
	}
	name := object.Name()
	reference := schema{"$ref": "#/components/schemas/" + name}
	if _, done := g.schemas[name]; done {
		return reference
	}
	g.schemas[name] = nil // while it is made: types can contain themselves
	var of schema
	switch under := t.Underlying().(type) {
	case *types.Struct:
		of = g.object(under, name)
	default:
		of = g.schemaOf(under)
		if values := enum(t); len(values) > 0 {
			of = schema{"type": "string", "enum": values}
		}
	}
	if doc := g.docs[name]; doc != "" {
		of["description"] = doc
	}
	g.schemas[name] = of
	return reference
}

// enum returns the values of a string type's constants.
func enum(t *types.Named) []string {
	if b, ok := t.Underlying().(*types.Basic); !ok || b.Info()&types.IsString == 0 {
		return nil
	}
	var values []string
	scope := t.Obj().Pkg().Scope()
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && types.Identical(c.Type(), t) {
			values = append(values, constant.StringVal(c.Val()))
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// object returns the schema of a structure. Fields that are always present are required.
func (g *generator) object(of *types.Struct, name string) schema {
	properties := map[string]schema{}
	required := []string{}
	g.fields(of, name, properties, &required)
	slices.Sort(required)
	out := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (g *generator) fields(of *types.Struct, name string, properties map[string]schema, required *[]string) {
	for i := range of.NumFields() {
		field := of.Field(i)
		tag, options, _ := strings.Cut(reflect.StructTag(of.Tag(i)).Get("json"), ",")
		if field.Embedded() && tag == "" {
			if embedded, ok := field.Type().Underlying().(*types.Struct); ok {
				inner := ""
				if n, ok := field.Type().(*types.Named); ok {
					inner = n.Obj().Name()
				}
				g.fields(embedded, inner, properties, required)
			}
			continue
		}
		if tag == "-" || tag == "" || !field.Exported() {
			continue
		}
		shown := g.schemaOf(field.Type())
		if doc := g.docs[name+"."+field.Name()]; doc != "" && name != "" {
			if shown["$ref"] != nil {
				shown = schema{"allOf": []schema{shown}}
			}
			described := schema{"description": doc}
			for key, value := range shown {
				if key != "description" {
					described[key] = value
				}
			}
			shown = described
		}
		properties[tag] = shown
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, tag)
		}
	}
}

// readDocs returns the comments on the types of a package and on their fields.
func readDocs(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok {
				noteDocs(docs, gen)
			}
		}
	}
	return docs, nil
}

func noteDocs(docs map[string]string, gen *ast.GenDecl) {
	for _, spec := range gen.Specs {
		of, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		doc := of.Doc
		if doc == nil {
			doc = gen.Doc
		}
		docs[of.Name.Name] = oneLine(doc)
		body, ok := of.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range body.Fields.List {
			for _, name := range field.Names {
				text := strings.TrimSpace(oneLine(field.Doc) + " " + oneLine(field.Comment))
				docs[of.Name.Name+"."+name.Name] = text
			}
		}
	}
}

func oneLine(c *ast.CommentGroup) string {
	return strings.Join(strings.Fields(c.Text()), " ")
}
