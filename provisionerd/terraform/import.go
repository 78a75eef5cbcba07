package terraform

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/host"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/result"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// importTemplate examines a new template version: its parameters and variables, and what it would build.
func (r *runner) importTemplate(ctx context.Context, work *provisionerpb.TemplateImport) *provisionerpb.Result {
	found := &provisionerpb.ImportResult{}
	res := &provisionerpb.Result{}
	err := r.importInto(ctx, work, found)
	if concern := r.host.Program().Concern(); concern != "" && err != nil && r.inModules {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", concern)
	}
	if err != nil {
		res = r.failed(err)
	}
	res.Of = &provisionerpb.Result_TemplateImport{TemplateImport: found}
	return res
}

func (r *runner) importInto(
	ctx context.Context, work *provisionerpb.TemplateImport, found *provisionerpb.ImportResult,
) error {
	r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Reading the template")
	t, err := r.open(ctx)
	if err != nil {
		return err
	}
	found.Variables, found.Readme = t.Variables, t.Readme
	found.NamesOwnerSessionToken, found.NamesOwnerSshPrivateKey = t.Token, t.Key
	found.NamesOwnerOidcAccessToken = t.OIDCToken
	for _, line := range t.Outdated {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
	}
	for _, place := range t.Backends {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "The backend in %s is not used: the server keeps the state",
			place)
	}
	r.warnVariables(t, work.GetVariables())
	if err := result.CheckVariables(t, work.GetVariables()); err != nil {
		return err
	}
	in := planInput{t: t, variables: work.GetVariables(), facts: host.Facts{
		Transition: "start", Metadata: work.GetMetadata(), Parameters: work.GetParameters(), Token: t.Token, Key: t.Key,
		OIDCToken: t.OIDCToken,
	}}
	projected, err := r.project(ctx, in)
	if errors.Is(err, errCanceled) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		// The plan of the whole template decides, and reports its own errors.
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_DEBUG, "Detecting parameters alone did not work: %v", err)
	}
	for _, p := range projected.Parameters() {
		if p.GetRequired() && !slices.ContainsFunc(in.facts.Parameters,
			func(v *provisionerpb.ParameterValue) bool { return v.GetName() == p.GetName() }) {
			in.facts.Parameters = append(in.facts.Parameters,
				&provisionerpb.ParameterValue{Name: p.GetName(), Value: result.Placeholder(p)})
		}
	}
	if in.lifted, err = liftedSources(t); err != nil {
		return err
	}
	r.log.Enter(result.StagePlan)
	start, err := r.plan(ctx, in, nil)
	if err != nil {
		return err
	}
	ignored := result.CheckSupport(t, start)
	for _, line := range ignored {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
	}
	tags, err := result.ReadTags(t, start)
	if err != nil {
		return err
	}
	found.WorkspaceTags, found.TagPlaces, found.ComputedTags = tags.Values, tags.Places, tags.Computed
	in.facts.Transition = "stop"
	stop, err := r.plan(ctx, in, start.Graph)
	if err != nil {
		return err
	}
	if found.StartResources, err = result.DeriveResources(t, start.Resources); err != nil {
		return err
	}
	if found.StopResources, err = result.DeriveResources(t, stop.Resources); err != nil {
		return err
	}
	if err := errors.Join(result.CheckSlugs(t, start.Resources),
		result.CheckLabels(found.GetStartResources())); err != nil {
		return err
	}
	presets, err := result.MergeDeclared(t, found, projected, start.Data)
	if err != nil {
		return err
	}
	return r.checkPresets(ctx, in, start, found, presets)
}

// warnVariables warns of values for variables that the template does not have.
func (r *runner) warnVariables(t *template.Source, values []*provisionerpb.VariableValue) {
	var names []string
	for _, v := range t.Variables {
		names = append(names, v.GetName())
	}
	for _, v := range values {
		if !slices.Contains(names, v.GetName()) {
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN,
				"The value of the variable %q is not used: the template has %s", v.GetName(),
				cmp.Or(strings.Join(names, ", "), "no variables"))
		}
	}
}

// liftedSources returns the files of the template as an import plans them, none if they are written in JSON.
func liftedSources(t *template.Source) (template.Edited, error) {
	files, err := t.Files()
	if errors.Is(err, template.ErrNoProjection) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return template.Importable(files), nil
}

// project finds parameters, tags and presets without the rest of the template.
func (r *runner) project(ctx context.Context, in planInput) (result.Declared, error) {
	files, err := in.t.Files()
	if err != nil {
		return result.Declared{}, err
	}
	r.log.Enter(result.StageDetect)
	content, dropped := template.Project(files)
	for _, name := range dropped {
		r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_DEBUG, "%s depends on more than variables: it is read from the plan",
			name)
	}
	in.lifted = content
	data, outputs, out, err := r.readProjection(ctx, in)
	if err != nil {
		return result.Declared{}, r.commandError("detect parameters", err, out, in.t)
	}
	d, err := result.ReadDeclared(in.t, data)
	if err != nil {
		return result.Declared{}, err
	}
	return d, d.AddLifted(outputs)
}

// readProjection applies a projection, which consists of the lifted files, and returns the data sources and outputs in
// its state. With an error it still returns Terraform's output.
func (r *runner) readProjection(
	ctx context.Context, in planInput,
) (data []result.Node, outputs map[string]result.StateOutput, out *result.Output, err error) {
	// The plan meets and reports the projection's errors again.
	quiet := result.NewLog(discardSink{})
	out = result.NewOutput(quiet, nil)
	if err := r.refill(in, false); err != nil {
		return nil, nil, out, err
	}
	env, err := r.slot.Serve(ctx, in.facts)
	if err != nil {
		return nil, nil, out, err
	}
	err = r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) error {
		tf.SetStderr(result.NewStderr(quiet))
		return tf.ApplyJSON(gentle, out, tfexec.Lock(false), tfexec.DisableBackup())
	})
	if err != nil {
		return nil, nil, out, err
	}
	found, err := result.StatesIn(r.slot.Work())
	if err != nil {
		return nil, nil, out, err
	}
	s, err := result.ParseState(result.Newest(nil, found...))
	if err != nil {
		return nil, nil, out, err
	}
	return s.Nodes("data"), s.Outputs, out, nil
}

// checkPresets returns a fault if two presets have one name or are the default, or if a preset names a parameter that
// does not exist, or a value that the parameter refuses. p is the plan of a start.
func (r *runner) checkPresets(
	ctx context.Context, in planInput, p result.Plan, found *provisionerpb.ImportResult, addresses []string,
) error {
	if err := result.CheckPresetNames(in.t, found.GetPresets(), addresses); err != nil {
		return err
	}
	for i, preset := range found.GetPresets() {
		place := in.t.Place(addresses[i])
		problem, unknown := result.PresetProblem(preset, found.GetParameters(), in.t)
		if problem != "" {
			// Parameters may depend on each other: with the preset's values they may be others.
			if there, err := r.parametersWith(ctx, in, preset); err == nil {
				problem, unknown = result.PresetProblem(preset, there, in.t)
			}
			if ctx.Err() != nil {
				return errCanceled
			}
		}
		switch {
		case problem == "":
		case unknown && p.HidesParameters():
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s: the preset %q %s now", place, preset.GetName(),
				problem)
		default:
			return fault.New(fault.Invalid, "%s: the preset %q %s", place, preset.GetName(), problem)
		}
		for _, line := range result.PrebuildWarnings(place, preset, found.GetParameters()) {
			r.log.Say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
		}
	}
	return nil
}

// parametersWith returns the parameters that the template has with the values of a preset.
func (r *runner) parametersWith(
	ctx context.Context, in planInput, preset *provisionerpb.Preset,
) ([]*provisionerpb.Parameter, error) {
	in.facts.Parameters = slices.Clone(in.facts.Parameters)
	for _, v := range preset.GetParameters() {
		in.facts.Parameters = slices.DeleteFunc(in.facts.Parameters,
			func(old *provisionerpb.ParameterValue) bool { return old.GetName() == v.GetName() })
		in.facts.Parameters = append(in.facts.Parameters, v)
	}
	found, err := r.project(ctx, in)
	return found.Parameters(), err
}
