package template

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/codermesh/codermesh/v2/internal/syntax"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const (
	maxOwnerDepth = 16  // bounds how deep an expression about the owner may be nested, locals included
	maxOwnerTerms = 256 // bounds its parts, however often it names a local
)

// errNotOwnerText is returned for expressions that an OwnerText cannot say.
var errNotOwnerText = errors.New("its expression is more than texts, names and addresses of the owner, coalesce and " +
	"lower")

// ownerFacts lists what an OwnerText can name, by data source and attribute.
var ownerFacts = map[string]provisionerpb.OwnerFact{
	"coder_workspace_owner.id":        provisionerpb.OwnerFact_OWNER_FACT_ID,
	"coder_workspace_owner.name":      provisionerpb.OwnerFact_OWNER_FACT_NAME,
	"coder_workspace_owner.full_name": provisionerpb.OwnerFact_OWNER_FACT_FULL_NAME,
	"coder_workspace_owner.email":     provisionerpb.OwnerFact_OWNER_FACT_EMAIL,
	"coder_workspace.name":            provisionerpb.OwnerFact_OWNER_FACT_WORKSPACE_NAME,
}

// Resources is what the root module's source says about its managed resources.
type Resources struct {
	blocks map[string]*hclsyntax.Block // by address without indexes
	locals map[string]hclsyntax.Expression
	terms  int // of the expression that is being read
}

// Resources reads the resources of the root module. It knows none of a module that is written in JSON.
func (t *Source) Resources() (*Resources, error) {
	r := &Resources{blocks: map[string]*hclsyntax.Block{}, locals: map[string]hclsyntax.Expression{}}
	files, err := t.Files()
	if errors.Is(err, ErrNoProjection) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if syntax.Overrides(file.Name) {
			continue // what it says about a block is not all about it
		}
		for _, block := range file.Body.Blocks {
			switch {
			case block.Type == "resource" && len(block.Labels) == 2:
				r.blocks[block.Labels[0]+"."+block.Labels[1]] = block
			case block.Type == "locals":
				for name, attr := range block.Body.Attributes {
					r.locals[name] = attr.Expr
				}
			}
		}
	}
	return r, nil
}

// Ignores reports whether a resource keeps what is at a path of its attributes, whatever the template says: its
// lifecycle block ignores changes of that or of what contains it. A path's steps are the names of attributes, keys of
// maps and indexes.
func (r *Resources) Ignores(address string, path []string) bool {
	block := r.blocks[address]
	if block == nil {
		return false
	}
	for _, inner := range block.Body.Blocks {
		attr := inner.Body.Attributes["ignore_changes"]
		if inner.Type != "lifecycle" || attr == nil {
			continue
		}
		if hcl.ExprAsKeyword(attr.Expr) == "all" {
			return true
		}
		ignored, diags := hcl.ExprList(attr.Expr)
		if !diags.HasErrors() && slices.ContainsFunc(ignored, func(e hcl.Expression) bool { return leadsTo(e, path) }) {
			return true
		}
	}
	return false
}

// leadsTo reports whether an expression, such as metadata[0].labels, names what is at a path or what contains it.
func leadsTo(e hcl.Expression, path []string) bool {
	traversal, diags := hcl.RelTraversalForExpr(e)
	if diags.HasErrors() || len(traversal) == 0 || len(traversal) > len(path) {
		return false
	}
	for i, s := range traversal {
		name := ""
		switch s := s.(type) {
		case hcl.TraverseAttr:
			name = s.Name
		case hcl.TraverseIndex:
			key, err := convert.Convert(s.Key, cty.String)
			if err != nil || key.IsNull() || !key.IsKnown() {
				return false
			}
			name = key.AsString()
		default:
			return false
		}
		if name != path[i] {
			return false
		}
	}
	return true
}

// OwnerText returns how an attribute of a resource follows from its owner; with a key, an element of an attribute that
// is an object. It is not safe for concurrent use.
func (r *Resources) OwnerText(address, attribute, key string) (*provisionerpb.OwnerText, error) {
	block := r.blocks[address]
	if block == nil || block.Body.Attributes[attribute] == nil {
		return nil, fmt.Errorf("%w: it is not in the root module", errNotOwnerText)
	}
	r.terms = 0
	expr := block.Body.Attributes[attribute].Expr
	if key == "" {
		return r.text(expr, 0)
	}
	object, ok := expr.(*hclsyntax.ObjectConsExpr)
	if !ok {
		return nil, errNotOwnerText
	}
	for _, item := range object.Items {
		if name, ok := syntax.Literal(item.KeyExpr); ok && name.Type() == cty.String && !name.IsNull() &&
			name.AsString() == key {
			return r.text(item.ValueExpr, 0)
		}
	}
	return nil, errNotOwnerText
}

func (r *Resources) text(expr hclsyntax.Expression, depth int) (*provisionerpb.OwnerText, error) {
	if r.terms++; depth > maxOwnerDepth || r.terms > maxOwnerTerms {
		return nil, errNotOwnerText
	}
	one := func(p *provisionerpb.OwnerPart) (*provisionerpb.OwnerText, error) {
		return &provisionerpb.OwnerText{Parts: []*provisionerpb.OwnerPart{p}}, nil
	}
	switch e := expr.(type) {
	case *hclsyntax.ParenthesesExpr:
		return r.text(e.Expression, depth+1)
	case *hclsyntax.TemplateWrapExpr:
		return r.text(e.Wrapped, depth+1)
	case *hclsyntax.LiteralValueExpr:
		if e.Val.IsNull() || e.Val.Type() != cty.String {
			return nil, errNotOwnerText
		}
		return one(&provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_Text{Text: e.Val.AsString()}})
	case *hclsyntax.TemplateExpr:
		all := &provisionerpb.OwnerText{}
		for _, part := range e.Parts {
			t, err := r.text(part, depth+1)
			if err != nil {
				return nil, err
			}
			all.Parts = append(all.Parts, t.GetParts()...)
		}
		return all, nil
	case *hclsyntax.ScopeTraversalExpr:
		if name, ok := step(e.Traversal, 1); ok && e.Traversal.RootName() == "local" && len(e.Traversal) == 2 &&
			r.locals[name] != nil {
			return r.text(r.locals[name], depth+1)
		}
		source, _ := step(e.Traversal, 1)
		attribute, ok := step(e.Traversal, 3)
		fact := ownerFacts[source+"."+attribute]
		if !ok || e.Traversal.RootName() != "data" || len(e.Traversal) != 4 ||
			fact == provisionerpb.OwnerFact_OWNER_FACT_UNSPECIFIED {
			return nil, errNotOwnerText
		}
		return one(&provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_Fact{Fact: fact}})
	case *hclsyntax.FunctionCallExpr:
		return r.call(e, depth)
	}
	return nil, errNotOwnerText
}

func (r *Resources) call(e *hclsyntax.FunctionCallExpr, depth int) (*provisionerpb.OwnerText, error) {
	if e.ExpandFinal || e.Name != "coalesce" && e.Name != "lower" || e.Name == "lower" && len(e.Args) != 1 {
		return nil, errNotOwnerText
	}
	var texts []*provisionerpb.OwnerText
	for _, arg := range e.Args {
		t, err := r.text(arg, depth+1)
		if err != nil {
			return nil, err
		}
		texts = append(texts, t)
	}
	first := &provisionerpb.OwnerPart_FirstOf{Texts: texts}
	part := &provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_FirstOf_{FirstOf: first}}
	if e.Name == "lower" {
		part = &provisionerpb.OwnerPart{Part: &provisionerpb.OwnerPart_Lower{Lower: texts[0]}}
	}
	return &provisionerpb.OwnerText{Parts: []*provisionerpb.OwnerPart{part}}, nil
}

// IsOwner reports whether the parts of a reference lead to something about the owner, or to a whole data source that
// has it.
func IsOwner(ref []string) bool {
	if len(ref) < 2 || ref[0] != "data" {
		return false
	}
	switch ref[1] {
	case "coder_workspace_owner", "coder_external_auth":
		return true
	case "coder_workspace":
		return len(ref) == 4 && ref[3] == "name"
	}
	return false
}

// NamesOwner reports whether a local value of the root module may depend on the owner. It errs on the safe side.
func (r *Resources) NamesOwner(local string) bool { return r.namesOwner(local, map[string]bool{}) }

func (r *Resources) namesOwner(local string, seen map[string]bool) bool {
	expr := r.locals[local]
	if expr == nil {
		return true
	}
	if seen[local] {
		return false
	}
	seen[local] = true
	return slices.ContainsFunc(traversals(expr), func(t hcl.Traversal) bool {
		ref := []string{t.RootName()}
		for i := 1; i < len(t); i++ {
			name, ok := step(t, i)
			if !ok {
				break
			}
			ref = append(ref, name)
		}
		switch {
		case ref[0] == "module", len(ref) == 1, len(ref) == 3 && ref[1] == "coder_workspace":
			return true
		case ref[0] == "local":
			return r.namesOwner(ref[1], seen)
		}
		return IsOwner(ref)
	})
}
