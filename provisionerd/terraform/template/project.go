package template

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// A projection is a template reduced to what its parameters, tags and presets depend on: variables, the coder
// provider's data sources, and the locals that these use. Terraform evaluates it exactly as it would the whole, but
// needs no other provider and no credentials. Removed text becomes blanks, so that lines keep their numbers.
//
// Data sources that read a resource, a module or another provider's data are omitted. Their values must come from a
// plan of the whole template.

// Edited holds new contents of files of the root module.
type Edited map[string][]byte

// ErrNoProjection is returned for templates that cannot be reduced.
var ErrNoProjection = errors.New("the template is written in JSON")

// Files returns the parsed files of the root module. It returns ErrNoProjection if parts of the module are written in
// JSON.
func (t *Source) Files() ([]syntax.Source, error) {
	if t.json {
		return nil, ErrNoProjection
	}
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	defer root.Close()
	names, err := fs.Glob(root.FS(), "*.tf")
	if err != nil {
		return nil, fmt.Errorf("list template: %w", err)
	}
	var parser syntax.Parser
	var files []syntax.Source
	for _, name := range names {
		text, err := ReadSource(root, name)
		if err != nil {
			return nil, err
		}
		file, diags := parser.Config(name, text)
		if diags.HasErrors() {
			return nil, SyntaxError(diags)
		}
		body, ok := file.Body.(*hclsyntax.Body)
		if !ok {
			return nil, ErrNoProjection
		}
		files = append(files, syntax.Source{Name: name, Text: text, Body: body})
	}
	return files, nil
}

// Blank replaces ranges of text with blanks, and keeps line ends.
func Blank(text []byte, ranges []hcl.Range) []byte {
	out := slices.Clone(text)
	for _, r := range ranges {
		for i := r.Start.Byte; i < r.End.Byte && i < len(out); i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	return out
}

// blockRange returns the range of a whole block, braces included.
func blockRange(b *hclsyntax.Block) hcl.Range {
	return hcl.RangeBetween(b.TypeRange, b.CloseBraceRange)
}

// WithoutValidation lifts the validation of parameters that have no default and no value yet: an import has nothing to
// validate. It returns the ranges to blank by file, and source text that makes the rules outputs, by parameter label.
func WithoutValidation(files []syntax.Source) (ranges map[string][]hcl.Range, outputs map[string]string) {
	ranges, outputs = map[string][]hcl.Range{}, map[string]string{}
	for _, file := range files {
		for _, block := range file.Body.Blocks {
			if block.Type != "data" || len(block.Labels) != 2 || block.Labels[0] != "coder_parameter" ||
				block.Body.Attributes["default"] != nil {
				continue
			}
			for _, inner := range block.Body.Blocks {
				if inner.Type != "validation" || readsInstance(inner.Body) {
					continue
				}
				ranges[file.Name] = append(ranges[file.Name], blockRange(inner))
				var out strings.Builder
				fmt.Fprintf(&out, "output %q {\n  sensitive = true\n  value = {\n", ValidationOutput+block.Labels[1])
				for _, name := range slices.Sorted(maps.Keys(inner.Body.Attributes)) {
					fmt.Fprintf(&out, "    %s = (%s)\n", name,
						inner.Body.Attributes[name].Expr.Range().SliceBytes(file.Text))
				}
				out.WriteString("  }\n}\n")
				outputs[block.Labels[1]] = out.String()
			}
		}
	}
	return ranges, outputs
}

// WithoutRules lifts the rules for parameters' values: validation, options, and inputs that need options. It covers the
// template's own modules and leaves out files that are not HCL.
func (t *Source) WithoutRules() (Edited, error) {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	defer root.Close()
	content := Edited{}
	var parser syntax.Parser
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".terraform":
			return fs.SkipDir
		case !entry.Type().IsRegular() || !strings.HasSuffix(name, ".tf"):
			return nil
		}
		text, err := ReadSource(root, name)
		if err != nil {
			return err
		}
		file, diags := parser.Config(name, text)
		if diags.HasErrors() {
			return nil // not of the root module, or Terraform would have refused it
		}
		if body, ok := file.Body.(*hclsyntax.Body); ok {
			if ranges := rulesIn(body); len(ranges) > 0 {
				content[name] = Blank(text, ranges)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	return content, nil
}

// rulesIn returns the ranges of the rules for the values of a file's parameters.
func rulesIn(body *hclsyntax.Body) []hcl.Range {
	var ranges []hcl.Range
	for _, block := range body.Blocks {
		if block.Type != "data" || len(block.Labels) != 2 || block.Labels[0] != "coder_parameter" {
			continue
		}
		if attr := block.Body.Attributes["form_type"]; attr != nil {
			ranges = append(ranges, attr.SrcRange)
		}
		for _, inner := range block.Body.Blocks {
			switch inner.Type {
			case "option", "validation", "dynamic": // these two are the only blocks that a parameter can generate
				ranges = append(ranges, blockRange(inner))
			}
		}
	}
	return ranges
}

const ValidationOutput = "zz_validation_"

// readsInstance reports whether a body reads each, count or self.
func readsInstance(body *hclsyntax.Body) bool {
	return slices.ContainsFunc(traversals(body), func(t hcl.Traversal) bool {
		switch t.RootName() {
		case "each", "count", "self":
			return true
		}
		return false
	})
}

// traversals returns all references in a piece of syntax.
func traversals(in hclsyntax.Node) []hcl.Traversal {
	var found []hcl.Traversal
	// The callback returns no diagnostics, so there are none.
	_ = hclsyntax.VisitAll(in, func(n hclsyntax.Node) hcl.Diagnostics {
		if expr, ok := n.(*hclsyntax.ScopeTraversalExpr); ok {
			found = append(found, expr.Traversal)
		}
		return nil
	})
	return found
}

// projector decides what a projection keeps.
type projector struct {
	resources map[string]bool // types of managed resources
	locals    map[string]hclsyntax.Expression
	data      map[string]*hclsyntax.Block // data sources of the coder provider, by "type.name"
	verdict   map[string]bool             // by "local.x" or "data.type.name": whether it can be kept
	used      map[string]bool             // locals that are needed
}

// Project reduces a template to its projection. dropped names the data sources that had to be omitted.
func Project(files []syntax.Source) (content Edited, dropped []string) {
	p := projector{
		resources: map[string]bool{}, locals: map[string]hclsyntax.Expression{}, data: map[string]*hclsyntax.Block{},
		verdict: map[string]bool{}, used: map[string]bool{},
	}
	for _, file := range files {
		for _, block := range file.Body.Blocks {
			switch {
			case block.Type == "resource" && len(block.Labels) == 2:
				p.resources[block.Labels[0]] = true
			case block.Type == "locals":
				for name, attr := range block.Body.Attributes {
					p.locals[name] = attr.Expr
				}
			case isCoderData(block):
				p.data[block.Labels[0]+"."+block.Labels[1]] = block
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.data)) {
		if p.keeps("data." + name) {
			p.use(p.data[name].Body)
		} else {
			dropped = append(dropped, "data."+name)
		}
	}
	for _, file := range files {
		for _, block := range file.Body.Blocks {
			if block.Type == "variable" {
				p.use(block.Body)
			}
		}
	}
	lifted, outputs := WithoutValidation(files)
	content = Edited{"zz_projection.tf": []byte(projectionHead)}
	for _, file := range files {
		content[file.Name] = Blank(file.Text, append(lifted[file.Name], p.removed(file)...))
	}
	for _, label := range slices.Sorted(maps.Keys(outputs)) {
		if block := p.data["coder_parameter."+label]; block != nil && p.verdict["data.coder_parameter."+label] {
			content["zz_projection.tf"] = append(content["zz_projection.tf"], outputs[label]...)
		}
	}
	return content, dropped
}

const projectionHead = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
`

func isCoderData(b *hclsyntax.Block) bool {
	return b.Type == "data" && len(b.Labels) == 2 && strings.HasPrefix(b.Labels[0], "coder_")
}

// keeps decides about a local or a data source, and everything that it depends on.
func (p *projector) keeps(name string) bool {
	if kept, known := p.verdict[name]; known {
		return kept
	}
	p.verdict[name] = true // Terraform reports cycles
	var in hclsyntax.Node
	if local, ok := strings.CutPrefix(name, "local."); ok {
		expr, ok := p.locals[local]
		if !ok {
			return true // Terraform reports it
		}
		in = expr
	} else {
		block, ok := p.data[strings.TrimPrefix(name, "data.")]
		if !ok {
			return !strings.HasPrefix(name, "data.") || strings.HasPrefix(name, "data.coder_")
		}
		in = block.Body
	}
	for _, t := range traversals(in) {
		if !p.keepsReference(t) {
			p.verdict[name] = false
			return false
		}
	}
	return true
}

func (p *projector) keepsReference(t hcl.Traversal) bool {
	switch root := t.RootName(); root {
	case "module", "resource":
		return false
	case "local":
		if name, ok := step(t, 1); ok {
			return p.keeps("local." + name)
		}
		return true
	case "data":
		typ, _ := step(t, 1)
		name, _ := step(t, 2)
		return p.keeps("data." + typ + "." + name)
	default:
		return !p.resources[root]
	}
}

// use marks the locals that a kept piece of syntax needs.
func (p *projector) use(in hclsyntax.Node) {
	for _, t := range traversals(in) {
		name, ok := step(t, 1)
		if t.RootName() != "local" || !ok || p.used[name] {
			continue
		}
		p.used[name] = true
		if expr, ok := p.locals[name]; ok {
			p.use(expr)
		}
	}
}

// removed returns the ranges of a file that do not belong to the projection.
func (p *projector) removed(file syntax.Source) []hcl.Range {
	var ranges []hcl.Range
	for _, block := range file.Body.Blocks {
		switch {
		case block.Type == "variable":
		case isCoderData(block) && p.verdict["data."+block.Labels[0]+"."+block.Labels[1]]:
		case block.Type == "locals":
			for name, attr := range block.Body.Attributes {
				if !p.used[name] {
					ranges = append(ranges, attr.SrcRange)
				}
			}
		default:
			ranges = append(ranges, blockRange(block))
		}
	}
	return ranges
}

func step(t hcl.Traversal, i int) (string, bool) {
	if i >= len(t) {
		return "", false
	}
	attr, ok := t[i].(hcl.TraverseAttr)
	return attr.Name, ok
}
