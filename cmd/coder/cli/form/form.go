package form

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// Of returns a function that asks the server for the form of a template version, one request per call. A zero owner
// means the user of the session.
func Of(
	ctx context.Context, client *sdk.Client, version, owner uuid.UUID,
) func(map[string]string) ([]parameter, error) {
	asked := 0
	return func(answers map[string]string) ([]parameter, error) {
		asked++
		form, err := client.EvaluateParameters(ctx, version, sdk.EvaluateParametersRequest{
			ID: asked, Inputs: answers, OwnerID: owner,
		})
		if err != nil {
			return nil, err
		}
		for _, d := range form.Diagnostics {
			if d.Severity == severityError {
				f := fault.New(fault.Invalid, "%s", strings.TrimSuffix(d.Summary, "."))
				f.Detail = d.Detail
				return nil, f
			}
		}
		out := make([]parameter, len(form.Parameters))
		for i, p := range form.Parameters {
			out[i] = shownAs(p)
		}
		return out, nil
	}
}

const severityError = "error"

// shownAs converts a parameter of a form.
func shownAs(p sdk.PreviewParameter) parameter {
	out := parameter{TemplateVersionParameter: sdk.TemplateVersionParameter{
		Name: p.Name, DisplayName: p.DisplayName, Description: p.Description, Type: p.Type, FormType: p.FormType,
		Mutable: p.Mutable, Icon: p.Icon,
		Required: p.Required, Ephemeral: p.Ephemeral,
	}}
	var styling struct {
		MaskInput bool `json:"mask_input"`
	}
	out.masked = json.Unmarshal(p.Styling, &styling) == nil && styling.MaskInput
	if p.DefaultValue.Valid {
		out.DefaultValue = p.DefaultValue.Value
	}
	for _, o := range p.Options {
		out.Options = append(out.Options, sdk.TemplateVersionParamOption{
			Name: o.Name, Description: o.Description, Icon: o.Icon, Value: o.Value.Value,
		})
	}
	for _, v := range p.Validations {
		out.ValidationError, out.ValidationMin, out.ValidationMax = v.Error, v.Min, v.Max
		if v.Regex != nil {
			out.ValidationRegex = *v.Regex
		}
	}
	var wrong []error
	for _, d := range p.Diagnostics {
		if d.Severity == severityError {
			wrong = append(wrong, errors.New(d.Detail))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		out.refused = err.Error()
	}
	return out
}

// Asker returns a function that asks on the terminal, or nil without a terminal or if silent is set.
func Asker(ctx context.Context, streams *tty.Streams, silent bool) func(tty.Question) (string, error) {
	if silent || !streams.InTTY {
		return nil
	}
	return func(q tty.Question) (string, error) { return streams.Ask(ctx, q) }
}
