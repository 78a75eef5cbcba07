// Package formdeps finds the parameters of a template whose form depends on other parameters' values or on the user.
// For these, an import's findings are valid for the defaults only. The package reads the root module and runs nothing;
// it knows HCL and nothing of the server.
package formdeps

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// Form is what a template's parameters depend on.
type Form struct {
	// Dynamic lists the names of parameters that depend on answers.
	Dynamic []string
	// Lasting lists those that cannot be changed once a workspace exists, and Ephemeral those whose value is valid for
	// one build. If that property is computed, the name is in neither.
	Lasting, Ephemeral []string
	// Open reports that there are also dynamic parameters whose names are computed.
	Open bool
}

// Fixed reports whether the form is the same for all users and all answers.
func (f Form) Fixed() bool { return len(f.Dynamic) == 0 && !f.Open }

// Parse reads the root module from a tar archive. An error means that it is not Terraform; an import has refused it.
func Parse(archive []byte) (Form, error) {
	m := module{locals: map[string]hclsyntax.Expression{}}
	for file, err := range syntax.RootModule(archive) {
		if err != nil {
			return Form{}, err
		}
		m.add(file.Body)
	}
	return m.form(), nil
}

// module holds the relevant parts of a root module.
type module struct {
	locals     map[string]hclsyntax.Expression
	parameters []*hclsyntax.Body
}

func (m *module) add(body *hclsyntax.Body) {
	for _, block := range body.Blocks {
		switch {
		case block.Type == "locals":
			for name, attr := range block.Body.Attributes {
				m.locals[name] = attr.Expr
			}
		case block.Type == "data" && len(block.Labels) == 2 && block.Labels[0] == "coder_parameter":
			m.parameters = append(m.parameters, block.Body)
		}
	}
}

func (m *module) form() Form {
	var f Form
	for _, body := range m.parameters {
		if !m.depends(body, map[string]bool{}) {
			continue
		}
		name, ok := literal(body)
		if !ok {
			f.Open = true
		} else if !slices.Contains(f.Dynamic, name) {
			f.Dynamic = append(f.Dynamic, name)
			if !says(body, "mutable", true) {
				f.Lasting = append(f.Lasting, name)
			}
			if says(body, "ephemeral", false) {
				f.Ephemeral = append(f.Ephemeral, name)
			}
		}
	}
	slices.Sort(f.Dynamic)
	return f
}

// depends reports whether a piece of syntax reads a data source, directly or through locals. Values that it reads from
// a resource or a module are not known before a build either.
func (m *module) depends(in hclsyntax.Node, seen map[string]bool) bool {
	found := false
	// The callback returns no diagnostics, so there are none.
	_ = hclsyntax.VisitAll(in, func(n hclsyntax.Node) hcl.Diagnostics {
		expr, ok := n.(*hclsyntax.ScopeTraversalExpr)
		if !ok || found {
			return nil
		}
		switch expr.Traversal.RootName() {
		case "data", "module":
			found = true
		case "local":
			name := ""
			if len(expr.Traversal) > 1 {
				if attr, ok := expr.Traversal[1].(hcl.TraverseAttr); ok {
					name = attr.Name
				}
			}
			if local := m.locals[name]; local != nil && !seen[name] {
				seen[name] = true
				found = m.depends(local, seen)
			}
		}
		return nil
	})
	return found
}

// says returns a parameter's value for a flag: false if the flag is missing, otherwise if it is computed.
func says(body *hclsyntax.Body, flag string, otherwise bool) bool {
	attr := body.Attributes[flag]
	if attr == nil {
		return false
	}
	value, ok := syntax.Literal(attr.Expr)
	if !ok || value.IsNull() || !value.Type().Equals(cty.Bool) {
		return otherwise
	}
	return value.True()
}

// literal returns the name of a parameter if it is a literal.
func literal(body *hclsyntax.Body) (string, bool) {
	attr := body.Attributes["name"]
	if attr == nil {
		return "", false
	}
	value, ok := syntax.Literal(attr.Expr)
	if !ok || value.IsNull() || value.Type().FriendlyName() != "string" {
		return "", false
	}
	return value.AsString(), true
}
