// Package syntax parses Terraform's language, and its JSON form, from untrusted text. HCL's parsers recurse without a
// limit, and so does all code that walks their result; Go cannot recover from a stack overflow. The lexer does not
// recurse, so it first measures every text: its size, its number of tokens, the nesting of its expressions, and the
// size of its numbers.
//
// It knows HCL and nothing of templates.
package syntax

import (
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty"
)

const (
	// MaxDepth is how deeply expressions and blocks may be nested. Operators of one expression count like brackets,
	// because a chain of them is a tree as deep as it is long.
	MaxDepth = 500
	// MaxFile is how many bytes one text may have.
	MaxFile = 1 << 20
	// maxBytes and maxTokens bound all texts of one Parser together: a parsed token takes a few hundred bytes of
	// memory.
	maxBytes  = 4 << 20
	maxTokens = 200_000
	// maxExponent bounds the exponents of numbers: written out, 1e999999999 has a gigabyte of digits.
	maxExponent = 400
)

// Parser parses the texts of one template, within bounds for all of them together. The zero value is ready. It is not
// safe for concurrent use. Filenames are for messages; a diagnostic about an exceeded bound has a summary with file and
// line and no detail.
type Parser struct {
	bytes, tokens int
}

// Config parses a file of Terraform's native syntax.
func (p *Parser) Config(name string, text []byte) (*hcl.File, hcl.Diagnostics) {
	if diags := p.measure(name, text, native); diags.HasErrors() {
		return nil, diags
	}
	return guarded(name,
		func() (*hcl.File, hcl.Diagnostics) { return hclsyntax.ParseConfig(text, name, hcl.InitialPos) })
}

// File parses a file in the syntax of its name: JSON for .json, else the native syntax.
func (p *Parser) File(name string, text []byte) (*hcl.File, hcl.Diagnostics) {
	if !strings.HasSuffix(name, ".json") {
		return p.Config(name, text)
	}
	if diags := p.measureJSON(name, text); diags.HasErrors() {
		return nil, diags
	}
	return guarded(name, func() (*hcl.File, hcl.Diagnostics) { return hcljson.Parse(text, name) })
}

// Expression parses one expression of the native syntax.
func (p *Parser) Expression(name string, text []byte) (hclsyntax.Expression, hcl.Diagnostics) {
	if diags := p.measure(name, text, expression); diags.HasErrors() {
		return nil, diags
	}
	return guarded(name, func() (hclsyntax.Expression, hcl.Diagnostics) {
		return hclsyntax.ParseExpression(text, name, hcl.InitialPos)
	})
}

// Editable parses a file of the native syntax for changes to it.
func (p *Parser) Editable(name string, text []byte) (*hclwrite.File, hcl.Diagnostics) {
	if diags := p.measure(name, text, native); diags.HasErrors() {
		return nil, diags
	}
	return guarded(name,
		func() (*hclwrite.File, hcl.Diagnostics) { return hclwrite.ParseConfig(text, name, hcl.InitialPos) })
}

// guarded turns a panic of a parser into a diagnostic: some malformed texts violate assertions of HCL's parsers.
func guarded[T any](name string, parse func() (T, hcl.Diagnostics)) (result T, diags hcl.Diagnostics) {
	defer func() {
		if reason := recover(); reason != nil {
			var none T
			result, diags = none, tooMuch(hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos},
				"the text cannot be parsed")
		}
	}()
	return parse()
}

func tooMuch(at hcl.Range, format string, args ...any) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: fmt.Sprintf(format, args...), Subject: &at}}
}

// size counts a text's bytes.
func (p *Parser) size(name string, text []byte) hcl.Diagnostics {
	start := hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(text) > MaxFile {
		return tooMuch(start, "the text is larger than %d KiB", MaxFile>>10)
	}
	if p.bytes += len(text); p.bytes > maxBytes {
		return tooMuch(start, "the template's files are larger than %d KiB together", maxBytes>>10)
	}
	return nil
}

// lexing is held while a long text is lexed, because its tokens take a hundred times its memory.
var lexing sync.Mutex

const longText = 64 << 10

// measure checks a text before it is parsed.
func (p *Parser) measure(name string, text []byte, in mode) hcl.Diagnostics {
	if diags := p.size(name, text); diags.HasErrors() {
		return diags
	}
	return p.count(name, text, in, hcl.InitialPos)
}

// count checks the tokens of a text that begins at a position.
func (p *Parser) count(name string, text []byte, in mode, start hcl.Pos) hcl.Diagnostics {
	if len(text) > longText {
		lexing.Lock()
		defer lexing.Unlock()
	}
	// The parser reports errors in the tokens.
	var tokens hclsyntax.Tokens
	switch in {
	case native:
		tokens, _ = hclsyntax.LexConfig(text, name, start)
	case expression:
		tokens, _ = hclsyntax.LexExpression(text, name, start)
	case template:
		tokens, _ = hclsyntax.LexTemplate(text, name, start)
	}
	d := depth{levels: []level{{mode: in}}}
	for i, token := range tokens {
		if d.step(token, tokens[i+1:]); d.total > MaxDepth {
			return tooMuch(token.Range, "expressions are nested more than %d levels deep", MaxDepth)
		}
		if token.Type == hclsyntax.TokenNumberLit && hugeNumber(string(token.Bytes)) {
			return tooMuch(token.Range, "the number has an exponent above %d", maxExponent)
		}
	}
	if p.tokens += len(tokens); p.tokens > maxTokens {
		return tooMuch(tokens[0].Range, "the template has more than %d words and signs", maxTokens)
	}
	return nil
}

// Literal returns the value of a literal expression. It does not evaluate loops, splats, calls and references, which
// could be slow or grow large.
func Literal(expr hcl.Expression) (cty.Value, bool) {
	if node, ok := expr.(hclsyntax.Node); ok {
		computed := false
		// The callback returns no diagnostics, so there are none.
		_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
			switch n.(type) {
			case *hclsyntax.ForExpr, *hclsyntax.SplatExpr, *hclsyntax.FunctionCallExpr, *hclsyntax.TemplateJoinExpr, *hclsyntax.ScopeTraversalExpr:
				computed = true
			}
			return nil
		})
		// An object's key may be a bare name, which looks like a reference.
		if computed && !onlyKeys(node) {
			return cty.NilVal, false
		}
	}
	value, diags := expr.Value(nil)
	if diags.HasErrors() || !value.IsWhollyKnown() {
		return cty.NilVal, false
	}
	return value, true
}

// onlyKeys reports whether all references in a piece of syntax are bare keys of objects, and nothing in it is computed.
func onlyKeys(node hclsyntax.Node) bool {
	keys := map[hclsyntax.Node]bool{}
	fine := true
	_ = hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ObjectConsExpr:
			for _, item := range n.Items {
				if key, ok := item.KeyExpr.(*hclsyntax.ObjectConsKeyExpr); ok && !key.ForceNonLiteral {
					keys[key.Wrapped] = true
				}
			}
		case *hclsyntax.ScopeTraversalExpr:
			fine = fine && keys[n] && len(n.Traversal) == 1
		case *hclsyntax.ForExpr, *hclsyntax.SplatExpr, *hclsyntax.FunctionCallExpr, *hclsyntax.TemplateJoinExpr:
			fine = false
		}
		return nil
	})
	return fine
}
