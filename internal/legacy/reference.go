package legacy

import (
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// expressions rewrites the references in a file.
func (m *module) expressions(f *source) {
	_ = hclsyntax.VisitAll(f.body, func(node hclsyntax.Node) hcl.Diagnostics {
		switch expr := node.(type) {
		case *hclsyntax.ScopeTraversalExpr:
			m.reference(f, expr.Traversal)
		case *hclsyntax.RelativeTraversalExpr: // data.coder_workspace.me[count.index].owner
			if index, ok := expr.Source.(*hclsyntax.IndexExpr); ok {
				m.indexed(f, index, expr)
			}
		case *hclsyntax.SplatExpr: // data.coder_workspace.me[*].owner
			from, ok := expr.Source.(*hclsyntax.ScopeTraversalExpr)
			each, more := expr.Each.(*hclsyntax.RelativeTraversalExpr)
			if ok && more && len(each.Traversal) > 0 {
				name, _ := stepName(each.Traversal[0])
				if r, gone := Find(kindOfReference(from.Traversal), name); gone {
					m.leave(expr.Range(), "%s", r)
				}
			}
		}
		return nil
	})
}

// reference rewrites a reference without computed indexes.
func (m *module) reference(f *source, t hcl.Traversal) {
	kind, at := kindOfReference(t), 1
	if strings.HasPrefix(kind, "data.") {
		at = 2
	}
	if kind == gitAuth {
		f.replace(t[1].SourceRange(), ".coder_external_auth")
		return
	}
	for _, step := range t[min(at+1, len(t)):] {
		name, ok := stepName(step)
		if !ok {
			continue // the index of a block with count
		}
		r, gone := Find(kind, name)
		if !gone {
			return
		}
		m.renamed(f, r, hcl.RangeBetween(t.SourceRange(), step.SourceRange()), step.SourceRange())
		return
	}
}

// indexed rewrites a reference to an attribute of one of several blocks.
func (m *module) indexed(f *source, index *hclsyntax.IndexExpr, expr *hclsyntax.RelativeTraversalExpr) {
	from, ok := index.Collection.(*hclsyntax.ScopeTraversalExpr)
	if !ok || len(expr.Traversal) == 0 {
		return
	}
	step := expr.Traversal[0]
	name, _ := stepName(step)
	if r, gone := Find(kindOfReference(from.Traversal), name); gone {
		m.renamed(f, r, hcl.RangeBetween(expr.Range(), step.SourceRange()), step.SourceRange())
	}
}

// renamed rewrites the reference to something that is gone. whole reaches from the reference's begin to the end of
// step, which names the attribute.
func (m *module) renamed(f *source, r Removal, whole, step hcl.Range) {
	switch {
	case r.Kind == workspace:
		m.uses = true
		f.replace(whole, "data.coder_workspace_owner."+m.owner+"."+owners[r.Attribute])
	case r.Kind == app && r.Attribute == "name":
		f.replace(step, ".display_name")
	default:
		m.leave(whole, "%s", r)
	}
}

// kindOfReference returns the kind of the block that a reference is about, or "".
func kindOfReference(t hcl.Traversal) string {
	if len(t) < 2 || t.IsRelative() {
		return ""
	}
	if t.RootName() != "data" {
		return t.RootName()
	}
	name, _ := stepName(t[1])
	return "data." + name
}

// stepName returns the attribute that a step names: .owner or ["owner"].
func stepName(step hcl.Traverser) (string, bool) {
	switch s := step.(type) {
	case hcl.TraverseAttr:
		return s.Name, true
	case hcl.TraverseIndex:
		if s.Key.Type() == cty.String && s.Key.IsKnown() && !s.Key.IsNull() {
			return s.Key.AsString(), true
		}
	}
	return "", false
}

// inJSON lists what is gone in a file of Terraform's JSON syntax, where lines are all that is known.
func inJSON(name string, text []byte) (left []Finding) {
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		for _, r := range All() {
			pattern := `"` + regexp.QuoteMeta(r.Attribute) + `"\s*:`
			switch {
			case r.Kind == workspace:
				pattern = `\bdata\.coder_workspace\.[\w-]+(\[[^\]]*\])?\.` + r.Attribute + `\b`
			case r.Attribute == "":
				pattern = `"coder_git_auth"|\bdata\.coder_git_auth\.`
			case r.Kind == app && r.Attribute == "name":
				continue // too common a word
			}
			if regexp.MustCompile(pattern).MatchString(line) {
				left = append(left, Finding{name, number, r.String()})
			}
		}
	}
	return left
}
