package legacy

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// Finding is a place that Rewrite cannot change, or changed with a loss.
type Finding struct {
	File string
	Line int
	Text string
}

func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text) }

// Rewrite rewrites the .tf files of a template for the built-in provider. files holds the template's text by
// slash-separated name. Rewrite returns those that change, with everything else in them as it was, and what is left to
// do by hand, by file and line. A file that cannot be parsed is a fault that begins with file and line.
func Rewrite(files map[string][]byte) (changed map[string][]byte, left []Finding, err error) {
	modules := map[string]*module{}
	var parser syntax.Parser
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".tf.json") {
			left = append(left, inJSON(name, files[name])...)
			continue
		}
		parsed, diags := parser.Config(name, files[name])
		if diags.HasErrors() {
			return nil, nil, syntaxError(name, diags)
		}
		m := modules[path.Dir(name)]
		if m == nil {
			m = &module{taken: map[string]bool{}}
			modules[path.Dir(name)] = m
		}
		m.files = append(m.files, &source{name: name, text: files[name], body: parsed.Body.(*hclsyntax.Body)})
	}
	changed = map[string][]byte{}
	for _, m := range modules {
		m.rewrite()
		left = append(left, m.left...)
		for _, f := range m.files {
			if len(f.edits) > 0 {
				changed[f.name] = f.edited()
			}
		}
	}
	slices.SortFunc(left,
		func(a, b Finding) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return changed, left, nil
}

// syntaxError describes the first error in a file, with its line.
func syntaxError(name string, diags hcl.Diagnostics) error {
	i := slices.IndexFunc(diags, func(d *hcl.Diagnostic) bool { return d.Severity == hcl.DiagError })
	d := diags[i]
	text := strings.TrimRight(d.Summary, ".:")
	if d.Detail != "" {
		text += ": " + d.Detail
	}
	if d.Subject == nil {
		return fault.New(fault.Invalid, "%s: %s", name, text)
	}
	return fault.New(fault.Invalid, "%s:%d: %s", name, d.Subject.Start.Line, text)
}

// module is a folder of files that share their names.
type module struct {
	files []*source
	owner string          // the name of data.coder_workspace_owner
	uses  bool            // whether it is needed
	taken map[string]bool // slugs of apps
	left  []Finding
}

// source is a file and the changes to it.
type source struct {
	name  string
	text  []byte
	body  *hclsyntax.Body
	edits []edit
}

// edit replaces the bytes from start to end.
type edit struct {
	start, end int
	text       string
}

func (f *source) replace(at hcl.Range, text string) {
	f.edits = append(f.edits, edit{at.Start.Byte, at.End.Byte, text})
}

// edited applies the edits. One that begins in what another deletes has no effect.
func (f *source) edited() []byte {
	slices.SortStableFunc(f.edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	var out []byte
	at := 0
	for _, e := range f.edits {
		if e.start < at {
			continue
		}
		out = append(append(out, f.text[at:e.start]...), e.text...)
		at = e.end
	}
	return append(out, f.text[at:]...)
}

func (m *module) leave(at hcl.Range, format string, args ...any) {
	m.left = append(m.left, Finding{at.Filename, at.Start.Line, fmt.Sprintf(format, args...)})
}

func (m *module) rewrite() {
	for _, f := range m.files {
		for _, b := range f.body.Blocks {
			if kindOf(b) == "data.coder_workspace_owner" && len(b.Labels) == 2 && b.Body.Attributes["count"] == nil &&
				b.Body.Attributes["for_each"] == nil {
				m.owner = cmp.Or(m.owner, b.Labels[1])
			}
			if s := b.Body.Attributes["slug"]; kindOf(b) == app && s != nil {
				m.taken[literal(s.Expr)] = true
			}
		}
	}
	declared := m.owner != ""
	m.owner = cmp.Or(m.owner, "me")
	for _, f := range m.files {
		for _, b := range f.body.Blocks {
			m.block(f, b)
		}
		m.expressions(f)
	}
	if m.uses && !declared {
		m.declareOwner()
	}
}

// declareOwner adds the data source of the owner behind that of the workspace.
func (m *module) declareOwner() {
	block := fmt.Sprintf("\n\ndata \"coder_workspace_owner\" %q {}", m.owner)
	for _, f := range m.files {
		for _, b := range f.body.Blocks {
			if kindOf(b) == workspace {
				end := b.CloseBraceRange.End.Byte
				f.edits = append(f.edits, edit{end, end, block})
				return
			}
		}
	}
	f := m.files[0] // the workspace's is missing, too
	f.edits = append(f.edits, edit{len(f.text), len(f.text), block + "\n"})
}

// kindOf returns the kind of a block, as in Removal.
func kindOf(b *hclsyntax.Block) string {
	if len(b.Labels) == 0 {
		return b.Type
	}
	if b.Type == "resource" {
		return b.Labels[0]
	}
	return b.Type + "." + b.Labels[0]
}

// block rewrites what a top-level block itself says.
func (m *module) block(f *source, b *hclsyntax.Block) {
	attrs := b.Body.Attributes
	switch kind := kindOf(b); kind {
	case gitAuth:
		f.replace(b.LabelRanges[0], `"coder_external_auth"`)
	case agent:
		m.readiness(f, attrs)
		for _, name := range []string{"startup_script_timeout", "shutdown_script_timeout"} {
			m.drop(f, attrs[name],
				"the limit of "+name+" is gone: if it matters, move the script to a coder_script with a timeout")
		}
	case app:
		m.app(f, b)
	case parameter:
		m.drop(f, attrs["legacy_variable"],
			"the variable no longer gives this parameter its value: make it the default if it should")
		m.drop(f, attrs["legacy_variable_name"], "")
	case provider:
		m.drop(f, attrs["feature_use_managed_variables"], "")
	case "terraform":
		m.settings(f, b)
	}
}

// readiness replaces login_before_ready.
func (m *module) readiness(f *source, attrs hclsyntax.Attributes) {
	old := attrs["login_before_ready"]
	switch {
	case old == nil:
	case attrs["startup_script_behavior"] != nil:
		m.drop(f, old, "")
	default:
		f.replace(old.NameRange, "startup_script_behavior")
		if v, ok := boolean(old.Expr); ok {
			f.replace(old.Expr.Range(), map[bool]string{true: `"non-blocking"`, false: `"blocking"`}[v])
		} else {
			f.surround(old.Expr, "(", `) ? "non-blocking" : "blocking"`)
		}
	}
}

// app replaces what is gone from an app, and adds its slug.
func (m *module) app(f *source, b *hclsyntax.Block) {
	attrs := b.Body.Attributes
	if old := attrs["name"]; old != nil && attrs["display_name"] != nil {
		m.drop(f, old, "")
	} else if old != nil {
		f.replace(old.NameRange, "display_name")
	}
	if old := attrs["relative_path"]; old != nil && attrs["subdomain"] != nil {
		m.drop(f, old, "")
	} else if old != nil {
		f.replace(old.NameRange, "subdomain")
		if v, ok := boolean(old.Expr); ok {
			f.replace(old.Expr.Range(), fmt.Sprint(!v))
		} else {
			f.surround(old.Expr, "!(", ")")
		}
	}
	if attrs["slug"] != nil || len(b.Labels) != 2 {
		return
	}
	name := strings.Trim(notSlug().ReplaceAllString(strings.ToLower(b.Labels[1]), "-"), "-")
	if name == "" || m.taken[name] || attrs["count"] != nil || attrs["for_each"] != nil {
		m.leave(b.DefRange(), "%s", slug.Instead)
		return
	}
	m.taken[name] = true
	at := b.OpenBraceRange.End.Byte
	indent := "  "
	for _, attr := range attrs {
		if line := f.line(attr.SrcRange.Start.Byte); strings.TrimSpace(line) == "" && line != "" {
			indent = line
		}
	}
	text := fmt.Sprintf("\n%sslug = %q", indent, name)
	if end := b.CloseBraceRange.Start; end.Line == b.OpenBraceRange.Start.Line && len(attrs) > 0 {
		text += "\n" + indent // a block of one line can have only one attribute
		f.edits = append(f.edits, edit{end.Byte, end.Byte, "\n"})
	}
	f.edits = append(f.edits, edit{at, at, text})
}

var notSlug = lazyregexp.New(`[^a-z0-9]+`)

// settings replaces a version constraint that excludes the built-in provider.
func (m *module) settings(f *source, b *hclsyntax.Block) {
	for _, required := range b.Body.Blocks {
		attr := required.Body.Attributes["coder"]
		if required.Type != "required_providers" || attr == nil {
			continue
		}
		object, ok := attr.Expr.(*hclsyntax.ObjectConsExpr)
		if !ok {
			continue
		}
		for _, item := range object.Items {
			if key, diags := item.KeyExpr.Value(nil); diags.HasErrors() || key.Type() != cty.String ||
				key.AsString() != "version" {
				continue
			}
			if Excludes(literal(item.ValueExpr)) {
				f.replace(item.ValueExpr.Range(), `"`+Constraint+`"`)
			}
		}
	}
}

// drop deletes an attribute, and its line if nothing else is on it. lost says what goes with it, or is empty.
func (m *module) drop(f *source, attr *hclsyntax.Attribute, lost string) {
	if attr == nil {
		return
	}
	if lost != "" {
		m.leave(attr.SrcRange, "%s", lost)
	}
	start, end := attr.SrcRange.Start.Byte, attr.SrcRange.End.Byte
	before := f.line(start)
	rest, _, more := strings.Cut(string(f.text[end:]), "\n")
	switch {
	case strings.TrimSpace(before) == "" && strings.TrimSpace(rest) == "":
		start -= len(before)
		end += len(rest)
		if more {
			end++
		}
	default: // a comment or a brace stays
		end += len(rest) - len(strings.TrimLeft(rest, " \t"))
	}
	f.edits = append(f.edits, edit{start, end, ""})
}

// line returns the text before a byte on its line.
func (f *source) line(at int) string {
	return string(f.text[strings.LastIndexByte(string(f.text[:at]), '\n')+1 : at])
}

// surround writes before and after an expression, and keeps it.
func (f *source) surround(expr hclsyntax.Expression, before, after string) {
	start, end := expr.Range().Start.Byte, expr.Range().End.Byte
	f.edits = append(f.edits, edit{start, start, before}, edit{end, end, after})
}

func boolean(expr hclsyntax.Expression) (value, ok bool) {
	v, ok := syntax.Literal(expr)
	if !ok || v.IsNull() || v.Type() != cty.Bool {
		return false, false
	}
	return v.True(), true
}

func literal(expr hclsyntax.Expression) string {
	v, ok := syntax.Literal(expr)
	if !ok || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}
