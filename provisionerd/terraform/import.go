package terraform

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// importTemplate examines a new template version: its parameters and variables, and what it would build.
func (r *runner) importTemplate(ctx context.Context, work *provisionerpb.TemplateImport) *provisionerpb.Result {
	found := &provisionerpb.ImportResult{}
	result := &provisionerpb.Result{}
	err := r.importInto(ctx, work, found)
	if concern := r.e.binary.concern(); concern != "" && err != nil && r.inModules {
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", concern)
	}
	if err != nil {
		result = r.e.failed(err)
	}
	result.Of = &provisionerpb.Result_TemplateImport{TemplateImport: found}
	return result
}

func (r *runner) importInto(ctx context.Context, work *provisionerpb.TemplateImport, found *provisionerpb.ImportResult) error {
	r.log.say(provisionerpb.LogLevel_LOG_LEVEL_INFO, "Reading the template")
	t, err := r.e.cache.open(ctx, r)
	if err != nil {
		return err
	}
	found.Variables, found.Readme = t.Variables, t.Readme
	found.NamesOwnerSessionToken, found.NamesOwnerSshPrivateKey, found.NamesOwnerOidcAccessToken = t.Token, t.Key, t.OIDCToken
	for _, line := range t.Outdated {
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "%s", line)
	}
	if t.Impossible != nil {
		return t.Impossible
	}
	for _, place := range t.Backends {
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "The backend in %s is not used: the server keeps the state", place)
	}
	r.warnVariables(t, work.GetVariables())
	if err := checkVariables(t, work.GetVariables()); err != nil {
		return err
	}
	in := planInput{t: t, variables: work.GetVariables(), facts: facts{
		transition: "start", metadata: work.GetMetadata(), parameters: work.GetParameters(), token: t.Token, key: t.Key, oidcToken: t.OIDCToken,
	}}
	projected, err := r.project(ctx, in)
	if errors.Is(err, errCanceled) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		// The plan of the whole template decides, and reports its own errors.
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_DEBUG, "Detecting parameters alone did not work: %v", err)
	}
	for _, p := range projected.sorted() {
		if p.GetRequired() && !slices.ContainsFunc(in.facts.parameters, func(v *provisionerpb.ParameterValue) bool { return v.GetName() == p.GetName() }) {
			in.facts.parameters = append(in.facts.parameters, &provisionerpb.ParameterValue{Name: p.GetName(), Value: placeholder(p)})
		}
	}
	if in.lifted, err = liftedSources(t); err != nil {
		return err
	}
	r.log.enter(stagePlan)
	start, err := r.plan(ctx, in, nil)
	if err != nil {
		return err
	}
	if err := r.checkSupport(t, start); err != nil {
		return err
	}
	tags, err := tagsOf(t, start)
	if err != nil {
		return err
	}
	found.WorkspaceTags, found.TagPlaces, found.ComputedTags = tags.values, tags.places, tags.computed
	in.facts.transition = "stop"
	stop, err := r.plan(ctx, in, start.graph)
	if err != nil {
		return err
	}
	if found.StartResources, err = deriveResources(t, start.resources); err != nil {
		return err
	}
	if found.StopResources, err = deriveResources(t, stop.resources); err != nil {
		return err
	}
	if err := errors.Join(checkSlugs(t, start.resources), checkLabels(found.GetStartResources())); err != nil {
		return err
	}
	presets, err := mergeDeclared(t, found, projected, start.data)
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
			r.log.say(provisionerpb.LogLevel_LOG_LEVEL_WARN, "The value of the variable %q is not used: the template has %s", v.GetName(),
				cmp.Or(strings.Join(names, ", "), "no variables"))
		}
	}
}

// mergeDeclared fills in what the projection found, and takes from the plan's data sources what the projection could not see: those in
// modules, and those that depend on other providers. It returns the addresses of the presets.
func mergeDeclared(t *template.Source, found *provisionerpb.ImportResult, projected declared, data []node) (presets []string, err error) {
	planned, err := readDeclared(t, data)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	all := declared{parameters: maps.Clone(projected.parameters)}
	if all.parameters == nil {
		all.parameters = map[string]*provisionerpb.Parameter{}
	}
	for address, p := range planned.parameters {
		if all.parameters[address] == nil {
			all.parameters[address] = p
		}
	}
	for _, address := range slices.Sorted(maps.Keys(all.parameters)) {
		name := all.parameters[address].GetName()
		if other, taken := names[name]; taken {
			return nil, &codedError{code: codeParameters, err: fmt.Errorf("%s: two parameters are named %q: %s (%s) and %s", t.Place(stripIndexes(address)), name,
				strings.TrimSuffix(other, "[]"), t.Place(stripIndexes(other)), strings.TrimSuffix(address, "[]"))}
		}
		names[name] = address
	}
	found.Parameters = all.sorted()
	// The plan sees all presets and external logins that the projection sees.
	found.Presets = planned.presets
	for _, auth := range planned.auths {
		i := slices.IndexFunc(found.ExternalAuth, func(a *provisionerpb.ExternalAuth) bool { return a.Id == auth.Id })
		if i < 0 {
			found.ExternalAuth = append(found.ExternalAuth, auth)
			continue
		}
		found.ExternalAuth[i].Optional = found.ExternalAuth[i].Optional && auth.Optional
	}
	return planned.presetsAt, nil
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
func (r *runner) project(ctx context.Context, in planInput) (declared, error) {
	files, err := in.t.Files()
	if err != nil {
		return declared{}, err
	}
	r.log.enter(stageDetect)
	content, dropped := template.Project(files)
	for _, name := range dropped {
		r.log.say(provisionerpb.LogLevel_LOG_LEVEL_DEBUG, "%s depends on more than variables: it is read from the plan", name)
	}
	in.lifted = content
	data, outputs, out, err := r.readProjection(ctx, in)
	if err != nil {
		return declared{}, r.commandError("detect parameters", err, out, in.t)
	}
	d, err := readDeclared(in.t, data)
	if err != nil {
		return declared{}, err
	}
	return d, d.addLifted(outputs)
}

// readProjection applies a projection, which consists of the lifted files, and returns the data sources and outputs in its state. With an
// error it still returns Terraform's output.
func (r *runner) readProjection(ctx context.Context, in planInput) (data []node, outputs map[string]stateOutput, out *output, err error) {
	// The plan meets and reports the projection's errors again.
	quiet := &logger{sink: discardSink{}}
	out = &output{log: quiet}
	if err := r.refill(in, false); err != nil {
		return nil, nil, out, err
	}
	env, err := r.slot.serve(ctx, in.facts)
	if err != nil {
		return nil, nil, out, err
	}
	err = r.terraform(ctx, env, func(gentle context.Context, tf *tfexec.Terraform) error {
		tf.SetStderr(stderrLines{quiet})
		return tf.ApplyJSON(gentle, out, tfexec.Lock(false), tfexec.DisableBackup())
	})
	if err != nil {
		return nil, nil, out, err
	}
	found, err := statesIn(r.slot.work())
	if err != nil {
		return nil, nil, out, err
	}
	s, err := parseState(newestOf(nil, found...))
	if err != nil {
		return nil, nil, out, err
	}
	return s.nodes("data"), s.Outputs, out, nil
}

// discardSink discards logs.
type discardSink struct{}

func (discardSink) Log(*provisionerpb.LogLine)          {}
func (discardSink) Change(*provisionerpb.Change)        {}
func (discardSink) Checkpoint([]byte)                   {}
func (discardSink) Resources([]*provisionerpb.Resource) {}

// refill makes a new working folder and fills it with the template, as edited. linked adds what init made.
func (r *runner) refill(in planInput, linked bool) error {
	return r.fill(in.t, linked, in.variables, nil, in.lifted)
}
