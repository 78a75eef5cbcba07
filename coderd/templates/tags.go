package templates

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/jobs"
	"github.com/codermesh/codermesh/coderd/jobtags"
	"github.com/codermesh/codermesh/coderd/templates/tagexpr"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// Tags returns the tags that a version requires of the provisioner of a job with these parameters.
func Tags(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, values []sdk.ParameterValue) (map[string]string, error) {
	row, err := q.GetTemplateVersionTags(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("read tags: %w", err)
	}
	tags := map[string]string{}
	if err := json.Unmarshal(row.Tags, &tags); err != nil {
		return nil, fmt.Errorf("decode tags: %w", err)
	}
	if row.Program == nil {
		return tags, nil
	}
	var program tagexpr.Program
	if err := json.Unmarshal(row.Program, &program); err != nil {
		return nil, fmt.Errorf("decode computed tags: %w", err)
	}
	variables, err := tagVariables(ctx, q, version)
	if err != nil {
		return nil, err
	}
	computed, err := program.Tags(valueMap(values), variables)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The template's provisioner tags cannot be computed: %w", err).
			WithDetail("They depend on parameters: try other values, or fix the template.")
	}
	maps.Copy(tags, computed)
	return tags, nil
}

func valueMap(values []sdk.ParameterValue) map[string]string {
	out := map[string]string{}
	for _, v := range values {
		out[v.Name] = v.Value
	}
	return out
}

func tagVariables(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID) (map[string]tagexpr.Variable, error) {
	rows, err := q.ListTemplateVersionVariables(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("list variables: %w", err)
	}
	out := map[string]tagexpr.Variable{}
	for _, row := range rows {
		out[row.Name] = tagexpr.Variable{Type: row.Type, Value: row.Value}
	}
	return out, nil
}

// storeTags stores the tags that were given with the import, overridden by the template's own: either fixed, or as a program
// that computes them from each build's parameters. The error may be a *jobs.Rejected.
func storeTags(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, job dbsqlc.ProvisionerJob, found *provisionerpb.ImportResult) error {
	tags := map[string]string{}
	if err := json.Unmarshal(job.Tags, &tags); err != nil {
		return fmt.Errorf("decode tags: %w", err)
	}
	own := map[string]string{}
	for key, value := range found.GetWorkspaceTags() {
		own[database.Text(key)] = database.Text(value)
	}
	var program []byte
	if len(own) > 0 {
		var err error
		if program, err = tagProgram(ctx, q, version, job, found); err != nil {
			return err
		}
	}
	if program == nil {
		maps.Copy(tags, own)
	}
	if err := jobtags.Check(tags); err != nil {
		return &jobs.Rejected{Reason: fmt.Sprintf("The template's provisioner tags cannot be used: %v.", err)}
	}
	data, err := json.Marshal(tags)
	if err != nil {
		return fmt.Errorf("encode tags: %w", err)
	}
	if err := q.UpsertTemplateVersionTags(ctx, dbsqlc.UpsertTemplateVersionTagsParams{TemplateVersionID: version, Tags: data, Program: program}); err != nil {
		return fmt.Errorf("store tags: %w", err)
	}
	return nil
}

// tagProgram returns the program that computes the template's tags from its parameters, nil if the tags do not depend on
// them. It tries the program with the parameters' defaults, so that the import fails and not a user's build.
func tagProgram(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, job dbsqlc.ProvisionerJob, found *provisionerpb.ImportResult) ([]byte, error) {
	file, err := q.GetFile(ctx, job.FileID)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	rejected := func(err error) error {
		return &jobs.Rejected{Reason: fmt.Sprintf("The template's coder_workspace_tags cannot be computed before a build runs: %v.", err)}
	}
	program, err := tagexpr.Parse(file.Data)
	if err != nil {
		return nil, rejected(err)
	}
	if program == nil {
		return nil, nil
	}
	if !slices.ContainsFunc(found.GetParameters(), func(p *provisionerpb.Parameter) bool { return p.GetRequired() }) {
		defaults := map[string]string{}
		for _, p := range found.GetParameters() {
			defaults[database.Text(p.GetName())] = database.Text(p.GetDefaultValue())
		}
		variables, err := tagVariables(ctx, q, version)
		if err != nil {
			return nil, err
		}
		tags, err := program.Tags(defaults, variables)
		if err == nil {
			err = jobtags.Check(tags)
		}
		if err != nil {
			return nil, rejected(err)
		}
	}
	data, err := json.Marshal(program)
	if err != nil {
		return nil, fmt.Errorf("encode computed tags: %w", err)
	}
	return data, nil
}
