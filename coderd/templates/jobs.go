package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/templates/formdeps"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Metadata returns what a template may read about the owner of a workspace in an organization, without secrets.
func Metadata(
	ctx context.Context, q *dbsqlc.Queries, accessURL string, organization, owner uuid.UUID,
) (*provisionerpb.Metadata, error) {
	u, err := q.GetTemplateOwnerFacts(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("read owner: %w", err)
	}
	groups, err := q.ListOwnerGroupNames(ctx, dbsqlc.ListOwnerGroupNamesParams{
		OrganizationID: organization, UserID: owner,
	})
	if err != nil {
		return nil, fmt.Errorf("list owner's groups: %w", err)
	}
	return OwnerMetadata(accessURL, u, groups), nil
}

// OwnerMetadata returns what a template may read about an owner of whom this is known.
func OwnerMetadata(accessURL string, u dbsqlc.GetTemplateOwnerFactsRow, groups []string) *provisionerpb.Metadata {
	return &provisionerpb.Metadata{
		AccessUrl: accessURL, OwnerId: u.ID[:], OwnerName: u.Username, OwnerEmail: u.Email, OwnerFullName: u.Name,
		OwnerGroups:    groups,
		OwnerLoginType: u.LoginType, OwnerRoles: append([]string{"member"}, u.Roles...),
		OwnerSshPublicKey: u.SshPublicKey,
	}
}

// given reports whether a value of a variable was given to the version. Other rows show the variable's default.
func given(row dbsqlc.TemplateVersionVariable) bool {
	if row.Given == nil { // an older server wrote it
		return row.Value != row.DefaultValue || row.Required
	}
	return *row.Given
}

// Variables returns the values that were given to a version's variables, for Terraform. It knows the defaults of the
// others.
func Variables(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID) ([]*provisionerpb.VariableValue, error) {
	rows, err := q.ListTemplateVersionVariables(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("list variables: %w", err)
	}
	var out []*provisionerpb.VariableValue
	for _, row := range rows {
		if !given(row) {
			continue
		}
		out = append(out, &provisionerpb.VariableValue{Name: row.Name, Value: row.Value, Sensitive: row.Sensitive})
	}
	return out, nil
}

// importHandler runs imports.
type importHandler struct{ *Service }

func (h importHandler) Offer(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, offer *provisionerpb.Offer,
) error {
	v, err := q.GetTemplateVersionByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read template version: %w", err)
	}
	metadata, err := versionMetadata(ctx, q, h.opts.AccessURL, job.InitiatorID, v)
	if err != nil {
		return err
	}
	variables, err := Variables(ctx, q, v.ID)
	if err != nil {
		return err
	}
	offer.Job = &provisionerpb.Offer_TemplateImport{TemplateImport: &provisionerpb.TemplateImport{
		Variables: variables, Metadata: metadata,
	}}
	return nil
}

func versionMetadata(
	ctx context.Context, q *dbsqlc.Queries, accessURL string, owner uuid.UUID, v dbsqlc.TemplateVersion,
) (*provisionerpb.Metadata, error) {
	m, err := Metadata(ctx, q, accessURL, v.OrganizationID, owner)
	if err != nil {
		return nil, err
	}
	m.TemplateVersion = v.Name
	if v.TemplateID != nil {
		t, err := q.GetTemplate(ctx, *v.TemplateID)
		if err != nil {
			return nil, fmt.Errorf("read template: %w", err)
		}
		m.TemplateId, m.TemplateName = t.ID[:], t.Name
	}
	return m, nil
}

// Checkpoint does nothing: imports do not send it because they keep no state.
func (importHandler) Checkpoint(context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob, []byte) error {
	return nil
}

// Resources does nothing: imports do not send it because they create nothing.
func (importHandler) Resources(
	context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob, []*provisionerpb.Resource,
) error {
	return nil
}

func (h importHandler) Finish(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result,
) error {
	found := result.GetTemplateImport()
	if found == nil {
		return nil
	}
	v, err := q.GetTemplateVersionByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read template version: %w", err)
	}
	// A failed import knows its variables too: they show what is missing.
	if err := storeVariables(ctx, q, v.ID, found.GetVariables()); err != nil {
		return err
	}
	if result.GetError() != "" || result.GetCanceled() {
		return nil
	}
	if err := agents.CheckAddresses(slices.Concat(found.GetStartResources(), found.GetStopResources()), h.opts.AccessURL); err != nil {
		return &jobs.Rejected{Reason: err.Error()}
	}
	if err := storeTags(ctx, q, v.ID, job, found); err != nil {
		return err
	}
	if err := q.FinishTemplateVersion(ctx, dbsqlc.FinishTemplateVersionParams{
		ID: v.ID, Readme: database.Text(found.GetReadme()), NamesOwnerSessionToken: found.GetNamesOwnerSessionToken(),
		NamesOwnerSshPrivateKey:   found.GetNamesOwnerSshPrivateKey(),
		NamesOwnerOidcAccessToken: found.GetNamesOwnerOidcAccessToken(),
	}); err != nil {
		return fmt.Errorf("finish template version: %w", err)
	}
	warn := func(text string) error { return h.opts.Jobs.Warn(ctx, q, job, "Storing the result", text) }
	form, fixed, err := h.form(ctx, q, job.FileID)
	if err != nil {
		return err
	}
	if fixed != nil && len(found.GetParameters()) > 0 {
		if err := warn(fmt.Sprintf("The parameters of this version do not depend on each other's values: %v", fixed)); err != nil {
			return err
		}
	}
	definitions, err := storeParameters(ctx, q, v.ID, found, form)
	if err != nil {
		return err
	}
	if v.TemplateID != nil {
		if err := h.warnOfLostValues(ctx, q, job, *v.TemplateID, definitions); err != nil {
			return err
		}
	}
	for _, auth := range found.GetExternalAuth() {
		if err := q.UpsertTemplateVersionExternalAuth(ctx, dbsqlc.UpsertTemplateVersionExternalAuthParams{
			TemplateVersionID: v.ID, ProviderID: database.Text(auth.GetId()), Optional: auth.GetOptional(),
		}); err != nil {
			return fmt.Errorf("store external auth: %w", err)
		}
	}
	for transition, resources := range map[sdk.Transition][]*provisionerpb.Resource{
		sdk.TransitionStart: found.GetStartResources(), sdk.TransitionStop: found.GetStopResources(),
	} {
		batch := agents.Batch{JobID: job.ID, Transition: transition, Resources: resources, Final: true}
		if transition == sdk.TransitionStart {
			batch.Warn = warn
		}
		if _, err := agents.Store(ctx, q, batch); err != nil {
			return err
		}
	}
	return nil
}

// storeVariables writes the definitions; it keeps values that were given.
func storeVariables(
	ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, variables []*provisionerpb.TemplateVariable,
) error {
	rows, err := q.ListTemplateVersionVariables(ctx, version)
	if err != nil {
		return fmt.Errorf("list variables: %w", err)
	}
	values := map[string]string{}
	for _, row := range rows {
		// Before an import, an older server too stores only what was given.
		if row.Given == nil || *row.Given {
			values[row.Name] = row.Value
		}
	}
	names := []string{}
	for _, v := range variables {
		name := database.Text(v.GetName())
		names = append(names, name)
		value, isGiven := values[name]
		if !isGiven {
			value = database.Text(v.GetDefaultValue())
		}
		if err := q.UpsertTemplateVersionVariable(ctx, dbsqlc.UpsertTemplateVersionVariableParams{
			TemplateVersionID: version, Name: name, Description: database.Text(v.GetDescription()),
			Type: database.Text(v.GetType()), Value: value,
			DefaultValue: database.Text(v.GetDefaultValue()), Required: v.GetRequired(), Sensitive: v.GetSensitive(),
			Given: &isGiven,
		}); err != nil {
			return fmt.Errorf("store variable: %w", err)
		}
	}
	if err := q.DeleteTemplateVersionVariablesExcept(ctx, dbsqlc.DeleteTemplateVersionVariablesExceptParams{
		TemplateVersionID: version, Names: names,
	}); err != nil {
		return fmt.Errorf("delete unknown variables: %w", err)
	}
	return nil
}

func storeParameters(
	ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, found *provisionerpb.ImportResult, form formdeps.Form,
) ([]Definition, error) {
	if err := q.DeleteTemplateVersionParameters(ctx, version); err != nil {
		return nil, fmt.Errorf("delete parameters: %w", err)
	}
	parameters := slices.SortedStableFunc(slices.Values(found.GetParameters()), func(a, b *provisionerpb.Parameter) int {
		return cmp.Or(cmp.Compare(a.GetOrder(), b.GetOrder()), strings.Compare(a.GetName(), b.GetName()))
	})
	var definitions []Definition
	for _, p := range parameters {
		d := definitionOf(p)
		d.Dynamic = slices.Contains(form.Dynamic, d.Name)
		definitions = append(definitions, d)
	}
	definitions = append(definitions, conditional(form, definitions)...)
	for i, d := range definitions {
		data, err := json.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode parameter: %w", err)
		}
		if err := q.InsertTemplateVersionParameter(ctx, dbsqlc.InsertTemplateVersionParameterParams{
			TemplateVersionID: version, Name: d.Name, Position: int32(i), Definition: data,
		}); err != nil {
			return nil, fmt.Errorf("store parameter: %w", err)
		}
	}
	if err := q.DeleteTemplateVersionPresets(ctx, version); err != nil {
		return nil, fmt.Errorf("delete presets: %w", err)
	}
	names := map[string]bool{}
	for _, p := range found.GetPresets() {
		if names[database.Text(p.GetName())] {
			return nil, &jobs.Rejected{Reason: fmt.Sprintf("Two presets are named %q.", database.Text(p.GetName()))}
		}
		names[database.Text(p.GetName())] = true
		values := []sdk.PresetParameter{}
		for _, v := range p.GetParameters() {
			values = append(values, sdk.PresetParameter{
				Name: database.Text(v.GetName()), Value: database.Text(v.GetValue()),
			})
		}
		data, err := json.Marshal(values)
		if err != nil {
			return nil, fmt.Errorf("encode preset: %w", err)
		}
		prebuilds, err := prebuildsOf(p.GetPrebuilds())
		if err != nil {
			return nil, err
		}
		if err := q.InsertTemplateVersionPreset(ctx, dbsqlc.InsertTemplateVersionPresetParams{
			ID: uuid.New(), TemplateVersionID: version, Name: database.Text(p.GetName()),
			Description: database.Text(p.GetDescription()), Icon: database.Text(p.GetIcon()),
			IsDefault: p.GetDefault(), Parameters: data, Prebuilds: prebuilds,
		}); err != nil {
			return nil, fmt.Errorf("store preset: %w", err)
		}
	}
	return definitions, nil
}

// prebuildsOf returns what is stored about a preset's prebuilt workspaces; nil for nothing.
func prebuildsOf(p *provisionerpb.Prebuilds) ([]byte, error) {
	if p == nil {
		return nil, nil
	}
	out := policy.Prebuilds{
		Instances: int(p.GetInstances()), TTLSeconds: p.GetTtlSeconds(), Timezone: database.Text(p.GetTimezone()),
	}
	for _, s := range p.GetSchedule() {
		out.Schedule = append(out.Schedule, policy.PrebuildsInHour{
			Cron: database.Text(s.GetCron()), Instances: int(s.GetInstances()),
		})
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode prebuilds: %w", err)
	}
	return data, nil
}

func parameterJSON(p *provisionerpb.Parameter) sdk.TemplateVersionParameter {
	out := sdk.TemplateVersionParameter{
		Name: database.Text(p.GetName()), DisplayName: database.Text(p.GetDisplayName()),
		Description: database.Text(p.GetDescription()), DescriptionPlaintext: database.Text(p.GetDescription()),
		Type: database.Text(p.GetType()), FormType: database.Text(p.GetFormType()), Mutable: p.GetMutable(),
		DefaultValue: database.Text(p.GetDefaultValue()), Icon: database.Text(p.GetIcon()),
		Required: p.GetRequired(), Ephemeral: p.GetEphemeral(), Options: []sdk.TemplateVersionParamOption{},
	}
	for _, o := range p.GetOptions() {
		out.Options = append(out.Options, sdk.TemplateVersionParamOption{
			Name: database.Text(o.GetName()), Description: database.Text(o.GetDescription()),
			Value: database.Text(o.GetValue()), Icon: database.Text(o.GetIcon()),
		})
	}
	if v := p.GetValidation(); v != nil {
		out.ValidationRegex, out.ValidationError, out.ValidationMonotonic = database.Text(v.GetRegex()), database.Text(v.GetError()), database.Text(v.GetMonotonic())
		out.ValidationMin, out.ValidationMax = v.Min, v.Max
	}
	return out
}

// DryRunInput is the input of a dry run.
type DryRunInput struct {
	TemplateVersionID uuid.UUID            `json:"template_version_id"`
	WorkspaceID       *uuid.UUID           `json:"workspace_id,omitempty"` // whose update is planned; nil: from nothing
	WorkspaceName     string               `json:"workspace_name,omitempty"`
	Parameters        []sdk.ParameterValue `json:"parameters"`
	Variables         []sdk.VariableValue  `json:"variables,omitempty"`
}

func decodeDryRun(job dbsqlc.ProvisionerJob) (in DryRunInput, err error) {
	if err := json.Unmarshal(job.Input, &in); err != nil {
		return in, fmt.Errorf("decode dry run: %w", err)
	}
	return in, nil
}

// dryRunHandler runs dry runs. It passes those of an existing workspace on to the handler of plans.
type dryRunHandler struct{ *Service }

// State implements jobs.StateReader.
func (h dryRunHandler) State(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) ([]byte, error) {
	in, err := decodeDryRun(job)
	if err != nil {
		return nil, err
	}
	if in.WorkspaceID == nil {
		return nil, fault.New(fault.NotFound, "The dry run has no state.")
	}
	return h.plans.State(ctx, q, job)
}

func (h dryRunHandler) Offer(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, offer *provisionerpb.Offer,
) error {
	in, err := decodeDryRun(job)
	if err != nil {
		return err
	}
	if in.WorkspaceID != nil {
		return h.plans.Offer(ctx, q, job, offer)
	}
	v, err := q.GetTemplateVersion(ctx, in.TemplateVersionID)
	if err != nil {
		return fmt.Errorf("read template version: %w", err)
	}
	metadata, err := versionMetadata(ctx, q, h.opts.AccessURL, job.InitiatorID, v)
	if err != nil {
		return err
	}
	metadata.WorkspaceName = in.WorkspaceName
	variables, err := Variables(ctx, q, v.ID)
	if err != nil {
		return err
	}
	for _, chosen := range in.Variables {
		i := slices.IndexFunc(variables,
			func(v *provisionerpb.VariableValue) bool { return v.GetName() == chosen.Name })
		if i < 0 {
			variables = append(variables, &provisionerpb.VariableValue{
				Name: chosen.Name, Value: chosen.Value, Sensitive: true,
			})
			continue
		}
		variables[i].Value = chosen.Value
	}
	offer.Job = &provisionerpb.Offer_TemplateDryRun{TemplateDryRun: &provisionerpb.TemplateDryRun{
		Variables: variables, Parameters: ParameterValues(in.Parameters), Metadata: metadata,
	}}
	return nil
}

// ParameterValues converts values to the provisioner's form.
func ParameterValues(values []sdk.ParameterValue) []*provisionerpb.ParameterValue {
	out := make([]*provisionerpb.ParameterValue, len(values))
	for i, v := range values {
		out[i] = &provisionerpb.ParameterValue{Name: v.Name, Value: v.Value}
	}
	return out
}

// Checkpoint does nothing: dry runs do not send it because they keep no state.
func (dryRunHandler) Checkpoint(context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob, []byte) error {
	return nil
}

// Resources does nothing: dry runs do not send it because they create nothing.
func (dryRunHandler) Resources(
	context.Context, *dbsqlc.Queries, dbsqlc.ProvisionerJob, []*provisionerpb.Resource,
) error {
	return nil
}

func (h dryRunHandler) Finish(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result,
) error {
	in, err := decodeDryRun(job)
	if err != nil {
		return err
	}
	if in.WorkspaceID != nil {
		return h.plans.Finish(ctx, q, job, result)
	}
	found := result.GetTemplateDryRun()
	if found == nil || result.GetError() != "" || result.GetCanceled() {
		return nil
	}
	_, err = agents.Store(ctx, q, agents.Batch{
		JobID: job.ID, Transition: sdk.TransitionStart, Resources: found.GetResources(), Final: true,
	})
	return err
}
