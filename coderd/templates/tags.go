package templates

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/jobtags"
	"github.com/codermesh/codermesh/v2/coderd/templates/tagexpr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Tags returns the tags that a version requires of the provisioner of a job with these parameters.
func Tags(
	ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, values []sdk.ParameterValue,
) (map[string]string, error) {
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

// storeTags stores the tags that were given with the import, overridden by the template's own: either fixed, or as a
// program that computes them from each build's parameters. The error may be a *jobs.Rejected.
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
	// A provisioner that names the places has checked that the values are the same for every build.
	if found.GetComputedTags() || len(found.GetTagPlaces()) == 0 {
		var err error
		if program, err = tagProgram(ctx, q, version, job, found, own); err != nil {
			return err
		}
	}
	if program == nil {
		maps.Copy(tags, own)
	}
	if err := jobtags.Check(tags); err != nil {
		return &jobs.Rejected{Reason: atPlaces(found.GetTagPlaces(), fmt.Sprintf("The template's provisioner tags cannot be used: %v.", err))}
	}
	data, err := json.Marshal(tags)
	if err != nil {
		return fmt.Errorf("encode tags: %w", err)
	}
	if err := q.UpsertTemplateVersionTags(ctx, dbsqlc.UpsertTemplateVersionTagsParams{
		TemplateVersionID: version, Tags: data, Program: program,
	}); err != nil {
		return fmt.Errorf("store tags: %w", err)
	}
	return nil
}

// tagText formats tags for messages.
func tagText(tags map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		pairs = append(pairs, key+"="+tags[key])
	}
	return cmp.Or(strings.Join(pairs, " "), "none")
}

// atPlaces puts file and line before a reason.
func atPlaces(places []string, reason string) string {
	if len(places) == 0 {
		return reason
	}
	return strings.Join(places, ", ") + ": " + reason
}

// tagProgram returns the program that computes the template's tags from its parameters, nil if the tags do not depend
// on them. It tries the program with the parameters' defaults, so that the import fails and not a user's build: the
// result must be own, the tags that Terraform computes. The error is a *jobs.Rejected if a build could run without one
// of the tags.
func tagProgram(ctx context.Context, q *dbsqlc.Queries, version uuid.UUID, job dbsqlc.ProvisionerJob, found *provisionerpb.ImportResult, own map[string]string) ([]byte, error) {
	file, err := q.GetFile(ctx, job.FileID)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	place, unreadable := tagexpr.Place(file.Data)
	rejected := func(err error) error {
		reason := fmt.Sprintf("The template's coder_workspace_tags cannot be computed before a build runs: %v.", err)
		if place != "" {
			reason = place + ": " + reason
		}
		return &jobs.Rejected{Reason: reason}
	}
	program, err := tagexpr.Parse(file.Data)
	if err != nil && (place != "" || len(own) > 0 || found.GetComputedTags()) {
		return nil, rejected(cmp.Or(unreadable, err))
	}
	if program == nil {
		return nil, unread(place, found, own)
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
		if err == nil && !maps.Equal(tags, own) {
			err = fmt.Errorf("the server computes %s, and Terraform %s", tagText(tags), tagText(own))
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

// unread returns a *jobs.Rejected if the provisioner says that tags depend on data that the server does not find in the
// source, or reports no tags of a source that has some.
func unread(place string, found *provisionerpb.ImportResult, own map[string]string) error {
	if found.GetComputedTags() {
		return &jobs.Rejected{Reason: atPlaces(found.GetTagPlaces(), "coder_workspace_tags depends on data that its expression does not show: remove depends_on and overriding files.")}
	}
	if place == "" || len(own) > 0 {
		return nil
	}
	return &jobs.Rejected{Reason: place + ": the provisioner found no value for coder_workspace_tags: update it to this server's release."}
}
