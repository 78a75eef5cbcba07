// Package tagexpr computes a build's provisioner tags that depend on its parameters. Tags decide where a build runs, so
// they must be known before a provisioner, and with it Terraform, is involved. The server therefore evaluates the
// expressions of coder_workspace_tags itself, in a subset of Terraform's language in which nothing can take long or
// grow large: no loops, no functions that repeat text. Anything else is an error that names it.
//
// The package knows HCL and nothing of the server.
package tagexpr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// Bounds, in bytes: of all expressions of a template, and of one intermediate value.
const (
	maxSource = 64 << 10
	maxValue  = 4 << 10
)

// Program describes how tags follow from parameters. It is stored as JSON.
type Program struct {
	Blocks     []string          `json:"blocks"`     // the text of each block's tags attribute
	Locals     map[string]string `json:"locals"`     // those that the tags need
	Parameters map[string]string `json:"parameters"` // expression of the name, by the label of the data source
}

// Variable is the value of a Terraform variable.
type Variable struct {
	Type  string // as declared in the template; empty for none
	Value string
}

// source holds the relevant parts of a template.
type source struct {
	tags       []expression
	locals     map[string]expression
	parameters map[string]expression // names, by label
	repeated   map[string]bool       // labels of parameters with count or for_each
	repeats    []expression          // count and for_each of the tags
	elsewhere  map[string]bool       // locals in JSON, which cannot be computed; true for those that read other objects
	override   string                // place of a local, tags or a parameter in a file that overrides others
}

type expression struct {
	hclsyntax.Expression
	text     string
	where    string // for people
	repeated bool   // in a block with count or for_each
}

// Place returns the file and line of the first tags in a template, or "" if its .tf files have none.
func Place(archive []byte) (string, error) {
	src, err := read(archive)
	if err != nil || len(src.tags) == 0 {
		return "", err
	}
	return src.tags[0].where, nil
}

// Parse reads the root module from a tar archive. It returns nil if all tags consist of variables, locals and
// constants: then the import's values are valid for every build.
func Parse(archive []byte) (*Program, error) {
	src, err := read(archive)
	if err != nil {
		return nil, err
	}
	p := &Program{Locals: map[string]string{}, Parameters: map[string]string{}}
	dynamic := slices.ContainsFunc(slices.Concat(src.tags, src.repeats), func(e expression) bool {
		return src.reads(e, map[string]bool{})
	})
	if !dynamic {
		return nil, nil
	}
	if src.override != "" {
		return nil, fmt.Errorf("%s: a file that overrides others cannot have tags, parameters or locals there",
			src.override)
	}
	size := 0
	var need func(e expression) error
	need = func(e expression) error {
		if size += len(e.text); size > maxSource {
			return fmt.Errorf("%s: the expressions are longer than %d KiB", e.where, maxSource>>10)
		}
		if e.repeated {
			return fmt.Errorf("%s: count and for_each are not possible there", e.where)
		}
		if err := allowed(e); err != nil {
			return err
		}
		for _, t := range traversals(e) {
			first := step(t, 1)
			switch t.RootName() {
			case "var":
			case "local":
				if _, known := p.Locals[first]; known {
					continue
				}
				local, ok := src.locals[first]
				if !ok {
					return fmt.Errorf("%s: there is no local.%s", e.where, first)
				}
				p.Locals[first] = local.text
				if err := need(local); err != nil {
					return err
				}
			case "data":
				label := step(t, 2)
				name, ok := src.parameters[label]
				if first != "coder_parameter" || !ok {
					return fmt.Errorf("%s: data.%s.%s is not known by then: use parameters, variables and locals",
						e.where, first, label)
				}
				if src.repeated[label] {
					return fmt.Errorf("%s: the parameter %s has count or for_each", e.where, label)
				}
				if _, known := p.Parameters[label]; known {
					continue
				}
				p.Parameters[label] = name.text
				if src.reads(name, map[string]bool{}) {
					return fmt.Errorf("%s: the name of the parameter %s depends on others", e.where, label)
				}
				if err := need(name); err != nil {
					return err
				}
			default:
				return fmt.Errorf("%s: %s is not known by then: use parameters, variables and locals", e.where,
					t.RootName())
			}
		}
		return nil
	}
	for _, tags := range src.tags {
		p.Blocks = append(p.Blocks, tags.text)
		if err := need(tags); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// reads reports whether an expression depends on more than constants, variables and what is the same for every build.
func (s *source) reads(e expression, seen map[string]bool) bool {
	return slices.ContainsFunc(traversals(e), func(t hcl.Traversal) bool {
		switch t.RootName() {
		case "var", "path", "terraform", "each", "count": // what repeats a block is examined itself
			return false
		case "local":
			name := step(t, 1)
			if seen[name] {
				return false
			}
			seen[name] = true
			local, ok := s.locals[name]
			return ok && s.reads(local, seen) || s.elsewhere[name]
		default:
			return true
		}
	})
}

func read(archive []byte) (*source, error) {
	src := &source{locals: map[string]expression{}, parameters: map[string]expression{}, repeated: map[string]bool{}, elsewhere: map[string]bool{}}
	for file, err := range syntax.RootModule(archive) {
		if err != nil {
			return nil, err
		}
		src.add(file)
	}
	for body, err := range syntax.RootJSON(archive) {
		if err != nil {
			return nil, err
		}
		src.addJSON(body)
	}
	return src, nil
}

// addJSON notes which locals of a JSON file may differ between builds.
func (s *source) addJSON(body hcl.Body) {
	content, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "locals"}}})
	for _, block := range content.Blocks {
		attrs, _ := block.Body.JustAttributes() // Terraform reports what is wrong with them
		for name, attr := range attrs {
			s.elsewhere[name] = slices.ContainsFunc(attr.Expr.Variables(),
				func(t hcl.Traversal) bool { return t.RootName() != "var" })
		}
	}
}

func (s *source) add(file syntax.Source) {
	overrides := func(r hcl.Range) {
		if s.override == "" && syntax.Overrides(file.Name) {
			s.override = fmt.Sprintf("%s:%d", file.Name, r.Start.Line)
		}
	}
	of := func(attr *hclsyntax.Attribute, body *hclsyntax.Body) expression {
		return expression{
			Expression: attr.Expr, text: string(attr.Expr.Range().SliceBytes(file.Text)),
			where: fmt.Sprintf("%s:%d", file.Name, attr.SrcRange.Start.Line), repeated: repeats(body),
		}
	}
	for _, block := range file.Body.Blocks {
		switch {
		case block.Type == "locals":
			for _, key := range slices.Sorted(maps.Keys(block.Body.Attributes)) {
				s.locals[key] = of(block.Body.Attributes[key], block.Body)
				overrides(block.TypeRange)
			}
		case block.Type != "data" || len(block.Labels) != 2:
		case block.Labels[0] == "coder_workspace_tags" && block.Body.Attributes["tags"] != nil:
			s.tags = append(s.tags, of(block.Body.Attributes["tags"], block.Body))
			for _, name := range []string{"count", "for_each"} {
				if attr := block.Body.Attributes[name]; attr != nil {
					s.repeats = append(s.repeats, of(attr, nil))
				}
			}
			overrides(block.TypeRange)
		case block.Labels[0] == "coder_parameter" && block.Body.Attributes["name"] != nil:
			label := block.Labels[1]
			s.parameters[label] = of(block.Body.Attributes["name"], nil)
			s.repeated[label] = repeats(block.Body)
			overrides(block.TypeRange)
		}
	}
}

func repeats(body *hclsyntax.Body) bool {
	return body != nil && (body.Attributes["count"] != nil || body.Attributes["for_each"] != nil)
}

// allowed returns an error for syntax outside the subset.
func allowed(e expression) error {
	var outside error
	// The callback returns no diagnostics, so there are none.
	_ = hclsyntax.VisitAll(e.Expression, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr, *hclsyntax.LiteralValueExpr, *hclsyntax.ScopeTraversalExpr, *hclsyntax.ConditionalExpr,
			*hclsyntax.BinaryOpExpr, *hclsyntax.UnaryOpExpr, *hclsyntax.ParenthesesExpr, *hclsyntax.IndexExpr, *hclsyntax.ObjectConsExpr,
			*hclsyntax.ObjectConsKeyExpr, *hclsyntax.TupleConsExpr, *hclsyntax.RelativeTraversalExpr:
		case *hclsyntax.FunctionCallExpr:
			if _, ok := functions[n.Name]; !ok || n.ExpandFinal {
				outside = fmt.Errorf("%s: the function %s is not possible there, only %s", e.where, n.Name,
					strings.Join(slices.Sorted(maps.Keys(functions)), ", "))
			}
		default:
			outside = fmt.Errorf("%s: only simple expressions are possible there: no loops and no splats", e.where)
		}
		return nil
	})
	return outside
}

func traversals(e expression) []hcl.Traversal { return e.Variables() }

func step(t hcl.Traversal, i int) string {
	if i >= len(t) {
		return ""
	}
	attr, ok := t[i].(hcl.TraverseAttr)
	if !ok {
		return ""
	}
	return attr.Name
}
