package template

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/legacy"
	"github.com/codermesh/codermesh/v2/internal/syntax"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Source is what Read finds in the source of a template.
type Source struct {
	Dir       string // the unpacked template
	Readme    string
	Variables []*provisionerpb.TemplateVariable
	// Parameters holds the names of the root module's parameters by their label in the source. It holds only literal
	// names.
	Parameters map[string]string
	// mandatory lists the names of parameters that have no default and are unconditional.
	mandatory []string
	NeedsInit bool     // something must be installed before Terraform runs
	Backends  []string // places of what keeps the state elsewhere
	modules   bool
	json      bool // parts are written in JSON
	Token     bool // uses the owner's session token
	Key       bool // uses the owner's private SSH key
	OIDCToken bool // uses the access token of the owner's sign-in
	Cost      bool // sets the daily cost of a resource
	Unmarks   bool // uses a function that removes Terraform's mark of sensitive values

	// file and line by address: resources, "data." and data sources, "module." and its name
	places   map[string]string
	Outdated []string          // sentences about version constraints that exclude the built-in provider
	Ignored  map[string]string // sentences about features without effect here, by address
}

// BackendOverride is the file that a provisioner adds to templates with a backend, to replace that.
const BackendOverride = "zz_backend_override.tf"

// moduleSchema lists the top-level blocks of a module that Read examines.
var moduleSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}},
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
}}

// Read examines an unpacked template. A syntax error is a fault that begins with file and line.
func Read(dir string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	defer root.Close()
	t := &Source{Dir: dir, Parameters: map[string]string{}, places: map[string]string{}, Ignored: map[string]string{}}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	var parser syntax.Parser
	found := false
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case entry.IsDir():
		case strings.EqualFold(name, "README.md"):
			text, err := readFile(root, name, maxReadme)
			if err != nil {
				return nil, err
			}
			t.Readme = strings.ReplaceAll(strings.ToValidUTF8(string(text), "\uFFFD"), "\x00", "")
		case strings.HasSuffix(name, ".tf"), strings.HasSuffix(name, ".tf.json"):
			found = true
			text, err := ReadSource(root, name)
			if err != nil {
				return nil, err
			}
			if err := t.readFile(&parser, name, text); err != nil {
				return nil, err
			}
		}
	}
	if !found {
		return nil, fault.New(fault.Invalid, "the template has no .tf file in its top folder")
	}
	t.NeedsInit = t.NeedsInit || t.modules || len(t.Backends) > 0
	slices.SortFunc(t.Variables,
		func(a, b *provisionerpb.TemplateVariable) int { return strings.Compare(a.Name, b.Name) })
	return t, t.readSecretNames(root)
}

func (t *Source) readFile(parser *syntax.Parser, name string, text []byte) error {
	t.json = t.json || strings.HasSuffix(name, ".json")
	file, diags := parser.File(name, text)
	if diags.HasErrors() {
		return SyntaxError(diags)
	}
	content, _, diags := file.Body.PartialContent(moduleSchema)
	if diags.HasErrors() {
		return SyntaxError(diags)
	}
	for _, block := range content.Blocks {
		switch block.Type {
		case "terraform":
			t.readSettings(block.Body)
		case "variable":
			t.readVariable(block, text)
			t.places["var."+block.Labels[0]] = placeOf(block)
		case "module":
			t.modules = true
			t.readModule(block)
		case "provider":
			t.NeedsInit = t.NeedsInit || !servedHere(block.Labels[0])
		default:
			provider, _, _ := strings.Cut(block.Labels[0], "_")
			t.NeedsInit = t.NeedsInit || !servedHere(provider)
			if block.Type != "ephemeral" {
				t.places[addressOf(block)] = placeOf(block)
				if provider == "coder" {
					t.readSupport(block)
				}
			}
			if block.Type == "data" && block.Labels[0] == "coder_parameter" {
				t.readParameter(block)
			}
		}
	}
	return nil
}

// servedHere reports whether a provider needs no installation: the coder provider is ours, terraform is built in.
func servedHere(name string) bool { return name == "coder" || name == "terraform" }

// SyntaxError returns the first error among diagnostics as a fault, Invalid, that begins with file and line.
func SyntaxError(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text := strings.TrimRight(d.Summary, ".:")
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		if d.Subject == nil {
			return fault.New(fault.Invalid, "%s", text)
		}
		return fault.New(fault.Invalid, "%s:%d: %s", d.Subject.Filename, d.Subject.Start.Line, text)
	}
	return diags
}

func (t *Source) readSettings(body hcl.Body) {
	content, _, _ := body.PartialContent(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "backend", LabelNames: []string{"type"}}, {Type: "cloud"}, {Type: "required_providers"},
	}})
	for _, block := range content.Blocks {
		if block.Type != "required_providers" {
			if block.DefRange.Filename != BackendOverride {
				t.Backends = append(t.Backends, placeOf(block))
			}
			continue
		}
		attrs, _ := block.Body.JustAttributes() // Terraform will report what is wrong with them
		for name, attr := range attrs {
			source := cmp.Or(member(attr.Expr, "source"), name)
			switch source {
			case "coder", "coder/coder", "registry.terraform.io/coder/coder", "registry.opentofu.org/coder/coder":
				if wanted := member(attr.Expr, "version"); legacy.Excludes(wanted) {
					t.Outdated = append(t.Outdated, fmt.Sprintf(
						"%s:%d: version %q excludes the provider coder %s, which is built in and runs all the same. "+
							"To adapt the template, run: coder templates migrate FOLDER",
						attr.Range.Filename, attr.Range.Start.Line, wanted, legacy.Version))
				}
			case "terraform", "terraform.io/builtin/terraform":
			default:
				t.NeedsInit = true
			}
		}
	}
}

// member returns the literal text that an object has under a name, or "".
func member(expr hcl.Expression, name string) string {
	value, ok := syntax.Literal(expr)
	if !ok || !value.Type().IsObjectType() || value.IsNull() || !value.Type().HasAttribute(name) {
		return ""
	}
	if s := value.GetAttr(name); s.IsKnown() && !s.IsNull() && s.Type() == cty.String {
		return s.AsString()
	}
	return ""
}

func (t *Source) readVariable(block *hcl.Block, text []byte) {
	attrs, _ := bodyAttributes(block.Body, "type", "default", "description", "sensitive")
	v := &provisionerpb.TemplateVariable{Name: block.Labels[0], Type: "string", Required: true}
	if attr, ok := attrs["type"]; ok {
		v.Type = strings.Trim(string(attr.Expr.Range().SliceBytes(text)), `" `)
	}
	if attr, ok := attrs["description"]; ok {
		v.Description = Literal(attr.Expr)
	}
	if attr, ok := attrs["sensitive"]; ok {
		value, ok := syntax.Literal(attr.Expr)
		v.Sensitive = ok && !value.IsNull() && value.Type() == cty.Bool && value.True()
	}
	if attr, ok := attrs["default"]; ok {
		v.Required = false
		v.DefaultValue = defaultText(attr.Expr)
	}
	t.Variables = append(t.Variables, v)
}

func defaultText(expr hcl.Expression) string {
	value, ok := syntax.Literal(expr)
	if !ok || value.IsNull() {
		return ""
	}
	if value.Type() == cty.String {
		return value.AsString()
	}
	text, err := ctyjson.Marshal(value, value.Type())
	if err != nil {
		return ""
	}
	return string(text)
}

func (t *Source) readParameter(block *hcl.Block) {
	attrs, _ := bodyAttributes(block.Body, "name", "default", "count", "for_each")
	attr, ok := attrs["name"]
	if !ok {
		return
	}
	name := Literal(attr.Expr)
	if name == "" {
		return
	}
	t.Parameters[block.Labels[1]] = name
	if attrs["default"] == nil && attrs["count"] == nil && attrs["for_each"] == nil {
		t.mandatory = append(t.mandatory, name)
	}
}

// bodyAttributes reads some attributes of a body that may have others and blocks.
func bodyAttributes(body hcl.Body, names ...string) (hcl.Attributes, hcl.Diagnostics) {
	schema := &hcl.BodySchema{}
	for _, name := range names {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	content, _, diags := body.PartialContent(schema)
	return content.Attributes, diags
}

// Literal returns the value of a literal string expression, or "".
func Literal(expr hcl.Expression) string {
	value, ok := syntax.Literal(expr)
	if !ok || value.IsNull() || value.Type() != cty.String {
		return ""
	}
	return value.AsString()
}

// readSecretNames collects which of the owner's secrets the source uses, in the root module and in all modules that it
// calls. A name counts wherever it appears as an identifier or quoted word, which errs on the safe side. Files behind
// links out of the folder do not count.
func (t *Source) readSecretNames(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read template: %w", err)
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".tf") && !strings.HasSuffix(name, ".tf.json") {
			return nil
		}
		text, err := readFile(root, name, maxModule)
		if err != nil && entry.Type()&fs.ModeSymlink != 0 && fault.CodeOf(err) == fault.Invalid {
			return nil
		}
		if err != nil {
			return err
		}
		t.Token = t.Token || namesWord(name, text, "session_token")
		t.Key = t.Key || namesWord(name, text, "ssh_private_key")
		t.OIDCToken = t.OIDCToken || namesWord(name, text, "oidc_access_token")
		t.Cost = t.Cost || namesWord(name, text, "daily_cost")
		t.Unmarks = t.Unmarks || namesWord(name, text, "nonsensitive")
		return nil
	})
}

func namesWord(file string, text []byte, word string) bool {
	if !bytes.Contains(text, []byte(word)) {
		return false
	}
	if strings.HasSuffix(file, ".json") || len(text) > syntax.MaxFile {
		return true
	}
	tokens, diags := hclsyntax.LexConfig(text, file, hcl.InitialPos)
	if diags.HasErrors() {
		return true
	}
	return slices.ContainsFunc(tokens, func(token hclsyntax.Token) bool {
		switch token.Type {
		case hclsyntax.TokenIdent, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
			return string(token.Bytes) == word
		}
		return false
	})
}

// MissingVariables returns the names of the variables that need a value and have none in values.
func (t *Source) MissingVariables(values []*provisionerpb.VariableValue) (missing []string) {
	for _, v := range t.Variables {
		if v.Required &&
			!slices.ContainsFunc(values,
				func(given *provisionerpb.VariableValue) bool { return given.GetName() == v.Name }) {
			missing = append(missing, v.Name)
		}
	}
	return missing
}

// MissingParameters returns the names of the parameters that need a value and have none in values.
func (t *Source) MissingParameters(values []*provisionerpb.ParameterValue) (missing []string) {
	for _, name := range t.mandatory {
		if !slices.ContainsFunc(values,
			func(given *provisionerpb.ParameterValue) bool { return given.GetName() == name }) {
			missing = append(missing, name)
		}
	}
	return missing
}

// VariablesFile returns the content of the job's variable file. Values of types other than string are written as in the
// language or in JSON.
func (t *Source) VariablesFile(values []*provisionerpb.VariableValue) ([]byte, error) {
	content := map[string]json.RawMessage{}
	for _, given := range values {
		i := slices.IndexFunc(t.Variables,
			func(v *provisionerpb.TemplateVariable) bool { return v.Name == given.GetName() })
		if i < 0 {
			continue // the template no longer has it
		}
		text, err := json.Marshal(given.GetValue())
		if err != nil {
			return nil, fmt.Errorf("encode variable %s: %w", given.GetName(), err)
		}
		if t.Variables[i].Type != "string" {
			var parser syntax.Parser
			expr, diags := parser.Expression(given.GetName(), []byte(given.GetValue()))
			if !diags.HasErrors() {
				if value, ok := syntax.Literal(expr); ok {
					if encoded, err := ctyjson.Marshal(value, value.Type()); err == nil {
						text = encoded
					}
				}
			}
		}
		content[given.GetName()] = text
	}
	return json.Marshal(content)
}
