// Package tfvars reads the files in a template whose values Terraform gives to variables without being asked:
// terraform.tfvars, terraform.tfvars.json, *.auto.tfvars and *.auto.tfvars.json in the top folder. It knows HCL and
// nothing of the server.
package tfvars

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/syntax"
)

// maxValues bounds how many variables the files of one template may set.
const maxValues = 1000

// Parse returns the values in a tar archive by the names of their variables. A value is text as users give it: strings
// as they are, numbers and booleans as in the language, lists and objects as JSON that is also an expression of the
// language. Of several files the last one counts, in Terraform's order: terraform.tfvars, terraform.tfvars.json, then
// the others by name. A null withdraws what an earlier file says. A file that Terraform would not read is a fault,
// Invalid, that begins with file and line. An archive that cannot be read has no values: its import says so.
func Parse(archive []byte) (map[string]string, error) {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		name := path.Clean(header.Name)
		if header.Typeflag != tar.TypeReg || !holdsValues(name) {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(r, syntax.MaxFile+1)) // the parser refuses more
		if err != nil {
			break
		}
		files[name] = text
	}
	values := map[string]string{}
	var parser syntax.Parser
	for _, name := range slices.SortedFunc(maps.Keys(files), byPrecedence) {
		file, diags := parser.File(name, files[name])
		if diags.HasErrors() {
			return nil, syntaxError(diags)
		}
		attrs, diags := file.Body.JustAttributes()
		if diags.HasErrors() {
			return nil, syntaxError(diags)
		}
		for _, attr := range attrs {
			if !hclsyntax.ValidIdentifier(attr.Name) {
				continue // JSON allows names that no variable can have
			}
			value, ok := syntax.Literal(attr.Expr)
			if !ok {
				return nil, fault.New(fault.Invalid, "%s:%d: the value of %s must be a literal, without references and functions", name, attr.Range.Start.Line, attr.Name)
			}
			if value.IsNull() {
				delete(values, attr.Name)
				continue
			}
			text, err := asText(value)
			if err != nil {
				return nil, fault.New(fault.Invalid, "%s:%d: the value of %s cannot be used: %w", name,
					attr.Range.Start.Line, attr.Name, err)
			}
			values[attr.Name] = text
		}
		if len(values) > maxValues {
			return nil, fault.New(fault.Invalid, "%s: the template's files set more than %d variables", name, maxValues)
		}
	}
	return values, nil
}

// holdsValues reports whether Terraform reads a file of the root module for values.
func holdsValues(name string) bool {
	return !strings.Contains(name, "/") &&
		(rank(name) < 2 || strings.HasSuffix(name, ".auto.tfvars") || strings.HasSuffix(name, ".auto.tfvars.json"))
}

func rank(name string) int {
	switch name {
	case "terraform.tfvars":
		return 0
	case "terraform.tfvars.json":
		return 1
	default:
		return 2
	}
}

func byPrecedence(a, b string) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
}

// sequences hides what begins a template sequence in a string of JSON, so that the text means the same in JSON and in
// the language.
var sequences = strings.NewReplacer("${", `\u0024{`, "%{", `\u0025{`)

func asText(value cty.Value) (string, error) {
	if value.Type().IsPrimitiveType() {
		text, err := convert.Convert(value, cty.String)
		if err != nil {
			return "", err
		}
		if strings.ContainsRune(text.AsString(), 0) {
			return "", errors.New("it holds a NUL character")
		}
		return text.AsString(), nil
	}
	text, err := ctyjson.Marshal(value, value.Type())
	return sequences.Replace(string(text)), err
}

// syntaxError returns the first error among diagnostics as a fault that begins with file and line.
func syntaxError(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text := strings.TrimRight(d.Summary, ".:")
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		if d.Subject != nil {
			text = fmt.Sprintf("%s:%d: %s", d.Subject.Filename, d.Subject.Start.Line, text)
		}
		return fault.New(fault.Invalid, "%s", text)
	}
	return diags
}
