package templates

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Question asks for the form of a template for some answers.
type Question struct {
	SourceSHA256 string // hex
	Source       func(context.Context) ([]byte, error)
	Variables    []*provisionerpb.VariableValue
	Parameters   []*provisionerpb.ParameterValue
	Metadata     *provisionerpb.Metadata
}

// Answer is the form. It does not contain the parameters of modules.
type Answer struct {
	Parameters []*provisionerpb.Parameter // in display order
	Values     map[string]string          // by name
	Refused    map[string]string          // why a given value was refused, by name; another value was used instead
	// Unknown reports that some parameters of the root module could not be evaluated: those are as they were at the
	// import.
	Unknown bool
}

const (
	// evaluateTimeout bounds one evaluation, including the wait for others. A busy machine answers late rather than
	// never: commands cannot go on without the form, and the page shows the last one meanwhile. Clients and proxies
	// give up after a minute.
	evaluateTimeout = 45 * time.Second
	// maxEvaluating bounds the evaluations that run or wait. More are refused.
	maxEvaluating = 32
	// maxInputs bounds the answers of a question, and maxInputBytes all of them together.
	maxInputs     = 1000
	maxInputBytes = 512 << 10
	// Answers are kept for a while, because people go back and forth, and pages ask twice.
	keepAnswers = 256
	answerFresh = time.Minute
)

func (s *Service) evaluate(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	var req sdk.EvaluateParametersRequest
	if err := httpapi.ReadAnyText(w, r, &req); err != nil {
		return err
	}
	out, err := s.answer(r.Context(), v, req)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// answer evaluates a version's form for the sender of a request.
func (s *Service) answer(
	ctx context.Context, v dbsqlc.TemplateVersion, req sdk.EvaluateParametersRequest,
) (sdk.EvaluateParametersResponse, error) {
	actor, out := httpapi.ActorFrom(ctx), sdk.EvaluateParametersResponse{ID: req.ID}
	if err := checkInputs(req.Inputs); err != nil {
		return out, err
	}
	owner := req.OwnerID
	if owner == uuid.Nil {
		owner = actor.UserID
	}
	// The form may show owner data that the template reads: require the permission to create a workspace for that
	// owner.
	if err := actor.May(rbac.Create, rbac.Of(rbac.Workspace, owner).In(v.OrganizationID)); err != nil {
		return out, rbac.NotFound(rbac.User)
	}
	imports, err := s.opts.DB.GetTemplateJob(ctx, dbsqlc.GetTemplateJobParams{
		ID: v.JobID, Kind: string(sdk.JobTemplateImport),
	})
	if err != nil {
		return out, fmt.Errorf("read import: %w", err)
	}
	if err := imported(v, imports); err != nil {
		return out, err
	}
	definitions, err := Definitions(ctx, s.opts.DB.Queries, v.ID)
	if err != nil {
		return out, err
	}
	answer := Answer{Unknown: true}
	if s.opts.Evaluate != nil && slices.ContainsFunc(definitions, func(d Definition) bool { return d.Dynamic }) {
		found, err := s.ask(ctx, v, imports.FileID, owner, req.Inputs)
		switch f := fault.As(err); {
		case err == nil:
			answer = found
		case ctx.Err() != nil:
			return out, err
		case errors.Is(err, context.DeadlineExceeded):
			out.Diagnostics = append(out.Diagnostics, problem("The template took too long to evaluate.",
				fmt.Sprintf("The limit is %s. The form shows the defaults.", evaluateTimeout)))
		case f != nil && f.Code == fault.Invalid:
			out.Diagnostics = append(out.Diagnostics,
				problem("The template cannot be evaluated for these values.", f.Message))
		default:
			return out, err
		}
	}
	out.Parameters = preview(definitions, answer, req.Inputs)
	return out, nil
}

// Allows reports whether the form of a version allows a value of a parameter to a workspace of an owner with these
// answers. It is true for what the form cannot tell, as for parameters of modules. It may take as long as an
// evaluation.
func (s *Service) Allows(
	ctx context.Context, version, owner uuid.UUID, answers map[string]string, name, value string,
) (bool, error) {
	if s.opts.Evaluate == nil {
		return true, nil
	}
	if err := checkInputs(answers); err != nil {
		return true, nil //nolint:nilerr // the form cannot tell
	}
	v, err := s.opts.DB.GetTemplateVersion(ctx, version)
	if err != nil {
		return false, fmt.Errorf("read template version: %w", err)
	}
	imports, err := s.opts.DB.GetTemplateJob(ctx, dbsqlc.GetTemplateJobParams{
		ID: v.JobID, Kind: string(sdk.JobTemplateImport),
	})
	if err != nil {
		return false, fmt.Errorf("read import: %w", err)
	}
	form, err := s.ask(ctx, v, imports.FileID, owner, answers)
	if f := fault.As(err); ctx.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || f != nil && f.Code == fault.Invalid) {
		return true, nil //nolint:nilerr // the form cannot tell
	}
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(form.Parameters, func(p *provisionerpb.Parameter) bool { return p.GetName() == name })
	return i < 0 || Check(parameterJSON(form.Parameters[i]), value, "") == "", nil
}

func checkInputs(inputs map[string]string) error {
	size := 0
	for name, value := range inputs {
		size += len(name) + len(value)
	}
	if len(inputs) > maxInputs || size > maxInputBytes {
		return fault.New(fault.Invalid, "There are too many values.").
			WithField("inputs", fmt.Sprintf("can have %d values with %d bytes in total", maxInputs, maxInputBytes))
	}
	return nil
}

func problem(summary, detail string) sdk.Diagnostic {
	return sdk.Diagnostic{Severity: "error", Summary: summary, Detail: detail}
}

// ask evaluates a question, or returns the kept answer.
func (s *Service) ask(
	ctx context.Context, v dbsqlc.TemplateVersion, file, owner uuid.UUID, inputs map[string]string,
) (Answer, error) {
	q := s.opts.DB.Queries
	metadata, err := versionMetadata(ctx, q, s.opts.AccessURL, owner, v)
	if database.IsNotFound(err) {
		return Answer{}, rbac.NotFound(rbac.User)
	}
	if err != nil {
		return Answer{}, err
	}
	variables, err := Variables(ctx, q, v.ID)
	if err != nil {
		return Answer{}, err
	}
	sum, err := q.GetFileSHA256(ctx, file)
	if err != nil {
		return Answer{}, fmt.Errorf("read template's hash: %w", err)
	}
	question := Question{
		SourceSHA256: sum, Variables: variables, Metadata: metadata,
		Source: func(ctx context.Context) ([]byte, error) {
			f, err := q.GetFile(ctx, file)
			return f.Data, err
		},
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if !cleanInput(name) || !cleanInput(inputs[name]) {
			return Answer{}, fault.New(fault.Invalid, "A value contains a NUL character.")
		}
		question.Parameters = append(question.Parameters, &provisionerpb.ParameterValue{
			Name: name, Value: inputs[name],
		})
	}
	key, err := json.Marshal([]any{v.ID, sum, variables, metadata, question.Parameters})
	if err != nil {
		return Answer{}, fmt.Errorf("encode question: %w", err)
	}
	answer, err := s.forms.Get(ctx, sha256.Sum256(key),
		func(ctx context.Context) (Answer, error) { return s.opts.Evaluate(ctx, question) })
	if errors.Is(err, memo.ErrBusy) {
		return Answer{}, fault.New(fault.RateLimited, "Too many forms are being evaluated.").
			WithDetail("Try again in a moment.")
	}
	return answer, err
}

func cleanInput(text string) bool { return database.Text(text) == text }

// newForms returns a cache of answers, including that a form cannot be evaluated for some values. It bounds how many
// evaluations run at once.
func newForms() *memo.Cache[[sha256.Size]byte, Answer] {
	return memo.New[[sha256.Size]byte, Answer](memo.Options{
		Fresh: answerFresh, Timeout: evaluateTimeout, Max: keepAnswers, Working: maxEvaluating,
		Keep: func(err error) bool { return fault.CodeOf(err) == fault.Invalid },
	})
}

// preview assembles a form from the answer, and from the import's definitions where the answer cannot have a parameter.
func preview(definitions []Definition, answer Answer, inputs map[string]string) sdk.List[sdk.PreviewParameter] {
	out := sdk.List[sdk.PreviewParameter]{}
	met := map[string]bool{}
	for _, p := range answer.Parameters {
		d := definitionOf(p)
		met[d.Name] = true
		shown := previewOf(d, inputs)
		if value, ok := answer.Values[d.Name]; ok && shown.Value.Valid {
			shown.Value.Value = value
		}
		if reason := answer.Refused[d.Name]; reason != "" {
			shown.Value = shown.DefaultValue
			shown.Diagnostics = sdk.List[sdk.Diagnostic]{problem("This value cannot be used.", reason)}
		}
		out = append(out, shown)
	}
	for _, d := range definitions {
		// A dynamic parameter that the answer lacks does not exist for these values.
		if !met[d.Name] && !d.Conditional && (answer.Unknown || !d.Dynamic) {
			out = append(out, previewOf(d, inputs))
		}
	}
	slices.SortStableFunc(out, func(a, b sdk.PreviewParameter) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// previewOf returns a definition with its given value, or its default.
func previewOf(d Definition, inputs map[string]string) sdk.PreviewParameter {
	p := sdk.PreviewParameter{
		Name: d.Name, DisplayName: d.DisplayName, Description: d.Description, Type: d.Type, FormType: d.FormType,
		Styling: json.RawMessage("{}"),
		Mutable: d.Mutable, Icon: d.Icon, Required: d.Required, Order: int64(d.Order), Ephemeral: d.Ephemeral,
		DefaultValue: sdk.PreviewValue{Value: d.DefaultValue, Valid: !d.Required},
	}
	var styling map[string]any
	if json.Unmarshal([]byte(d.Styling), &styling) == nil && styling != nil {
		p.Styling = json.RawMessage(d.Styling)
	}
	for _, o := range d.Options {
		p.Options = append(p.Options, sdk.PreviewOption{Name: o.Name, Description: o.Description, Icon: o.Icon, Value: sdk.PreviewValue{Value: o.Value, Valid: true}})
	}
	if d.ValidationRegex != "" || d.ValidationMin != nil || d.ValidationMax != nil || d.ValidationMonotonic != "" {
		p.Validations = append(p.Validations, sdk.ParameterValidation{
			Error: d.ValidationError, Regex: nonEmpty(d.ValidationRegex), Min: d.ValidationMin, Max: d.ValidationMax,
			Monotonic: nonEmpty(d.ValidationMonotonic),
		})
	}
	p.Value = p.DefaultValue
	if value, ok := inputs[d.Name]; ok {
		p.Value = sdk.PreviewValue{Value: value, Valid: true}
		if wrong := Check(d.TemplateVersionParameter, value, ""); wrong != "" {
			p.Diagnostics = append(p.Diagnostics, problem("This value cannot be used.", wrong))
		}
	}
	return p
}

func nonEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
