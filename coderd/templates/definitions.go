package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/templates/formdeps"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// AnyName stands for all parameters with computed names.
const AnyName = "*"

// Definition is a parameter as an import found it.
type Definition struct {
	sdk.TemplateVersionParameter
	Styling string `json:"styling,omitempty"` // a JSON object, "" for none
	Order   int32  `json:"order,omitempty"`
	// Conditional marks a parameter that exists for some answers only, and did not exist at the import. Only its name
	// is known, whether it can be changed, and how long its value is valid.
	Conditional bool `json:"conditional,omitempty"`
}

// Masked reports whether the parameter's value must not be shown: its input is masked, or the import found no input and
// so cannot tell.
func (d Definition) Masked() bool {
	if d.Conditional {
		return true
	}
	var styling struct {
		MaskInput bool `json:"mask_input"`
	}
	return json.Unmarshal([]byte(d.Styling), &styling) == nil && styling.MaskInput
}

// hide replaces a problem that quotes a masked value with a sentence without the value.
func (d Definition) hide(problem, value string) string {
	if value != "" && d.Masked() && strings.Contains(problem, value) {
		return "does not follow the template's rules"
	}
	return problem
}

// checkable returns the part of the definition that a value can be checked against before a build: only the type of a
// dynamic parameter. Terraform checks the rest.
func (d Definition) checkable() sdk.TemplateVersionParameter {
	p := d.TemplateVersionParameter
	if d.Dynamic {
		p.Options, p.ValidationRegex, p.ValidationMin, p.ValidationMax = nil, "", nil, nil
	}
	return p
}

// Definitions returns the parameters that a version may ask for, in display order, conditional parameters last.
func Definitions(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID) ([]Definition, error) {
	rows, err := q.ListTemplateVersionParameters(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("list parameters: %w", err)
	}
	out := make([]Definition, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(row.Definition, &out[i]); err != nil {
			return nil, fmt.Errorf("decode parameter %s: %w", row.Name, err)
		}
	}
	return out, nil
}

func definitionOf(p *provisionerpb.Parameter) Definition {
	d := Definition{TemplateVersionParameter: parameterJSON(p), Order: p.GetOrder()}
	if json.Valid([]byte(p.GetStyling())) {
		d.Styling = database.Text(p.GetStyling())
	}
	return d
}

// conditional returns the parameters of a form that the import did not find.
func conditional(form formdeps.Form, met []Definition) []Definition {
	var out []Definition
	add := func(name string) {
		out = append(out, Definition{Conditional: true, TemplateVersionParameter: sdk.TemplateVersionParameter{
			Name: name, Dynamic: true, Mutable: !slices.Contains(form.Lasting, name),
			Ephemeral: slices.Contains(form.Ephemeral, name),
		}})
	}
	for _, name := range form.Dynamic {
		if name = database.Text(name); !slices.ContainsFunc(met, func(d Definition) bool { return d.Name == name }) {
			add(name)
		}
	}
	if form.Open {
		add(AnyName)
	}
	return out
}

// expand replaces the definition for computed names with one definition for each value.
func expand(definitions []Definition, from Values) []Definition {
	i := slices.IndexFunc(definitions, func(d Definition) bool { return d.Name == AnyName })
	if i < 0 {
		return definitions
	}
	out := slices.Delete(slices.Clone(definitions), i, i+1)
	for _, v := range slices.Concat(from.Given, from.Preset, from.Previous) {
		if !slices.ContainsFunc(out, func(d Definition) bool { return d.Name == v.Name }) {
			d := definitions[i]
			d.Name = v.Name
			out = append(out, d)
		}
	}
	return out
}

// form returns what the parameters of a source depend on. If the server cannot read the source, the form is fixed, and
// fixed says why.
func (s *Service) form(ctx context.Context, q *dbsqlc.Queries, file uuid.UUID) (form formdeps.Form, fixed, err error) {
	source, err := q.GetFile(ctx, file)
	if err != nil {
		return formdeps.Form{}, nil, fmt.Errorf("read template: %w", err)
	}
	form, fixed = formdeps.Parse(source.Data)
	if fixed != nil {
		return formdeps.Form{}, fixed, nil
	}
	return form, nil, nil
}
