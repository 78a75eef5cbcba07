package syntax_test

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/codermesh/codermesh/v2/internal/syntax"
)

const many = 100_000

// deep makes texts that nest a piece n times, each on line 2 of a file.
var deep = map[string]func(n int) string{
	"parentheses":      func(n int) string { return "x = " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) },
	"open parentheses": func(n int) string { return "x = " + strings.Repeat("(", n) },
	"lists":            func(n int) string { return "x = " + strings.Repeat("[", n) + strings.Repeat("]", n) },
	"objects":          func(n int) string { return "x = " + strings.Repeat("{a=", n) + "1" + strings.Repeat("}", n) },
	"not":              func(n int) string { return "x = " + strings.Repeat("!", n) + "true" },
	"minus":            func(n int) string { return "x = " + strings.Repeat("- ", n) + "1" },
	"interpolations":   func(n int) string { return "x = " + strings.Repeat(`"${`, n) + "1" + strings.Repeat(`}"`, n) },
	"blocks":           func(n int) string { return strings.Repeat("a {\n", n) + strings.Repeat("}\n", n) },
	"else chain":       func(n int) string { return "x = " + strings.Repeat("a ? b : ", n) + "c" },
	"then chain":       func(n int) string { return "x = " + strings.Repeat("a ? ", n) + "b" + strings.Repeat(" : c", n) },
	"sum":              func(n int) string { return "x = 1" + strings.Repeat("+1", n) },
	"sum over lines":   func(n int) string { return "x = (1" + strings.Repeat("\n+1", n) + ")" },
	"sum in a loop":    func(n int) string { return "x = {for k, v in y : k => 1" + strings.Repeat("\n+1", n) + "}" },
	"and":              func(n int) string { return "x = a" + strings.Repeat(" && a", n) },
	"comparisons":      func(n int) string { return "x = a" + strings.Repeat(" == a", n) },
	"indexes":          func(n int) string { return "x = a" + strings.Repeat("[b]", n) },
	"splats":           func(n int) string { return "x = a" + strings.Repeat("[*]", n) },
	"attribute splats": func(n int) string { return "x = a" + strings.Repeat(".*.b", n) },
	"calls":            func(n int) string { return "x = " + strings.Repeat("f(", n) + strings.Repeat(")", n) },
	"template conditions": func(n int) string {
		return `x = "` + strings.Repeat("%{if a}", n) + strings.Repeat("%{endif}", n) + `"`
	},
	"template loops": func(n int) string {
		return `x = "` + strings.Repeat("%{for a in b}", n) + strings.Repeat("%{endfor}", n) + `"`
	},
	"heredoc conditions": func(n int) string {
		return "x = <<E\n" + strings.Repeat("%{if a}", n) + strings.Repeat("%{endif}", n) + "\nE"
	},
	"heredoc interpolations": func(n int) string {
		return "x = <<E\n" + strings.Repeat(`${"`, n) + strings.Repeat(`"}`, n) + "\nE"
	},
	"loops": func(n int) string {
		return "x = " + strings.Repeat("[for a in b : ", n) + "1" + strings.Repeat("]", n)
	},
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for name, text := range deep {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p syntax.Parser
			_, diags := p.Config("main.tf", []byte("# first\n"+text(20_000)+"\n"))
			if !diags.HasErrors() || diags[0].Summary != fmt.Sprintf("expressions are nested more than %d levels deep", syntax.MaxDepth) ||
				diags[0].Subject == nil || diags[0].Subject.Filename != "main.tf" || diags[0].Subject.Start.Line < 2 {
				t.Errorf("got %v", diags)
			}
			var q syntax.Parser
			if _, diags := q.Config("main.tf", []byte("# first\n"+text(100)+"\n")); name != "open parentheses" && name != "attribute splats" && diags.HasErrors() {
				t.Errorf("a hundred levels are refused: %v", diags)
			}
		})
	}
}

// TestLongChains shows that the bounds, and not the parser, reject texts far beyond them.
func TestLongChains(t *testing.T) {
	t.Parallel()
	for name, text := range deep {
		var p syntax.Parser
		if _, diags := p.Config("main.tf", []byte(text(300_000))); !diags.HasErrors() || diags[0].Detail != "" {
			t.Errorf("%s: got %v", name, diags)
		}
	}
}

func TestWideIsFine(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lines":          strings.Repeat("a {\n  b = c ? d : e + 1 # why\n}\n", 4000),
		"list":           "x = [" + strings.Repeat("f(a) + 1, ", 10_000) + "]",
		"object":         "x = {\n" + strings.Repeat("  a = 1 + 1\n", 10_000) + "}",
		"interpolations": `x = "` + strings.Repeat("${a} ", 10_000) + `"`,
		"conditions":     "x = <<E\n" + strings.Repeat("%{if a}x%{else}y%{endif}\n", 10_000) + "E",
	} {
		var p syntax.Parser
		text += "\n"
		_, diags := p.Config("main.tf", []byte(text))
		for _, d := range diags {
			if strings.Contains(d.Summary, "nested") || strings.Contains(d.Summary, "more than") {
				t.Errorf("%s: %v", name, d)
			}
		}
	}
}

func TestDeepJSON(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"objects":  strings.Repeat(`{"a":`, many) + "1" + strings.Repeat("}", many),
		"arrays":   "{\"a\":\n" + strings.Repeat("[", many) + strings.Repeat("]", many) + "}",
		"open":     strings.Repeat("[", many),
		"template": `{"locals":{"a":"` + strings.Repeat("${(", many) + `"}}`,
	} {
		var p syntax.Parser
		if _, diags := p.File("main.tf.json", []byte(text)); !diags.HasErrors() || !strings.Contains(diags.Error(), "levels deep") {
			t.Errorf("%s: got %.200v", name, diags)
		}
	}
	for text, want := range map[string]string{"{\n\n}}": "main.tf.json:3", "{\n": "main.tf.json:2", `{"a": 1e999999999}`: "exponent", `{"a":"${1e999999999}"}`: "exponent"} {
		var p syntax.Parser
		if _, diags := p.File("main.tf.json", []byte(text)); !diags.HasErrors() || !strings.Contains(diags.Error(), want) {
			t.Errorf("%q: got %v", text, diags)
		}
	}
	var p syntax.Parser
	if _, diags := p.File("main.tf.json", []byte(`{"locals": [{"a": [1, 2.5e3, null, "${b}"]}]}`)); diags.HasErrors() {
		t.Error(diags)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	var p syntax.Parser
	if _, diags := p.Config("main.tf", make([]byte, syntax.MaxFile+1)); !diags.HasErrors() || !strings.Contains(diags.Error(), "larger than 1024 KiB") {
		t.Errorf("got %v", diags)
	}
	full := []byte("x = [" + strings.Repeat("1,", syntax.MaxFile/2-8) + "]\n")
	if _, diags := p.Config("main.tf", full); !diags.HasErrors() || !strings.Contains(diags.Error(), "more than 200000") {
		t.Errorf("got %v", diags)
	}
	var q syntax.Parser
	half := []byte("/*" + strings.Repeat("x", syntax.MaxFile-8) + "*/\n")
	for n := range 5 {
		_, diags := q.Config(fmt.Sprint(n, ".tf"), half)
		if refused := diags.HasErrors(); refused != (n == 4) {
			t.Errorf("file %d: %v", n, diags)
		}
	}
	if _, diags := new(syntax.Parser).Expression("x", []byte("1e401")); !diags.HasErrors() {
		t.Error("a huge number is accepted")
	}
	if _, diags := new(syntax.Parser).Expression("x", []byte(strings.Repeat("(", many))); !diags.HasErrors() || !strings.Contains(diags.Error(), "levels deep") {
		t.Errorf("got %.200v", diags)
	}
	if _, diags := new(syntax.Parser).Editable("lock", []byte(strings.Repeat("a {\n", many))); !diags.HasErrors() || !strings.Contains(diags.Error(), "levels deep") {
		t.Errorf("got %.200v", diags)
	}
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]cty.Value{
		`"x"`:                            cty.StringVal("x"),
		`{ a = 1, "b" = 2 }`:             cty.ObjectVal(map[string]cty.Value{"a": cty.NumberIntVal(1), "b": cty.NumberIntVal(2)}),
		`[true, -1]`:                     cty.TupleVal([]cty.Value{cty.True, cty.NumberIntVal(-1)}),
		`1 + 2`:                          cty.NumberIntVal(3),
		`var.x`:                          cty.NilVal,
		`{ a = b }`:                      cty.NilVal,
		`{ (a) = 1 }`:                    cty.NilVal,
		`f()`:                            cty.NilVal,
		`[for a in [1, 2] : a]`:          cty.NilVal,
		`[1, 2][*]`:                      cty.NilVal,
		`"%{for a in [1, 2]}x%{endfor}"`: cty.NilVal,
	} {
		expr, diags := new(syntax.Parser).Expression("x", []byte(text))
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		got, ok := syntax.Literal(expr)
		if ok != (want != cty.NilVal) || ok && !got.RawEquals(want) {
			t.Errorf("%s: got %#v, %v", text, got, ok)
		}
	}
}

// FuzzConfig parses what passes with a small stack: it fails if the measured depth is below the parser's.
func FuzzConfig(f *testing.F) {
	for _, text := range deep {
		f.Add(text(3), 400)
	}
	f.Add("a ? b : \"%{if c}${d}%{endif}\"\n", 1000)
	f.Fuzz(func(_ *testing.T, piece string, n int) {
		defer debug.SetMaxStack(debug.SetMaxStack(64 << 20))
		if n < 0 || n > 16<<10 || n*len(piece) > 16<<10 {
			return
		}
		for _, text := range []string{piece, "x = " + strings.Repeat(piece, n), strings.Repeat(piece, n)} {
			file, diags := new(syntax.Parser).Config("main.tf", []byte(text))
			if file != nil && !diags.HasErrors() {
				_ = hclsyntax.VisitAll(file.Body.(*hclsyntax.Body), func(n hclsyntax.Node) hcl.Diagnostics {
					if expr, ok := n.(hcl.Expression); ok {
						syntax.Literal(expr)
					}
					return nil
				})
			}
			_, _ = new(syntax.Parser).Expression("x", []byte(text))
			_, _ = new(syntax.Parser).Editable("x", []byte(text))
			_, _ = new(syntax.Parser).File("main.tf.json", []byte(text))
		}
	})
}
