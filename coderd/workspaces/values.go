package workspaces

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// value is a parameter's value as a build has it.
type value struct {
	sdk.ParameterValue
	computed bool // by the template: no one chose it
}

// resolved holds the values for a new build.
type resolved struct {
	now   []value
	found []value // of the previous build, which has not stored them
}

// valuesOf returns the values with which a build was made: those that it has stored, and found ones that are only in
// its state. A build stores what it was asked for at once, and what its template computed when it succeeds. A build
// that failed, or that ran on an earlier release, has stored no computed values. definitions are those of the version
// that needs the values.
func (s *Service) valuesOf(
	ctx context.Context, q *dbsqlc.Queries, workspace, build uuid.UUID, definitions []templates.Definition,
) (stored, found []value, err error) {
	rows, err := q.ListBuildParameters(ctx, build)
	if err != nil {
		return nil, nil, fmt.Errorf("list parameters of build: %w", err)
	}
	stored = make([]value, len(rows))
	for i, row := range rows {
		stored[i] = value{sdk.ParameterValue{Name: row.Name, Value: row.Value}, row.Computed}
	}
	if !slices.ContainsFunc(definitions, func(d templates.Definition) bool { return !d.Ephemeral && !has(stored, d.Name) }) {
		return stored, nil, nil
	}
	state, err := s.state(ctx, q, workspace, build)
	if fault.CodeOf(err) == fault.Conflict {
		return stored, nil, nil // it cannot be read, as the build will say
	}
	if err != nil {
		return nil, nil, err
	}
	return stored, missing(stored, state, definitions), nil
}

func has(values []value, name string) bool {
	return slices.ContainsFunc(values, func(v value) bool { return v.Name == name })
}

// missing returns the values in a state that a build has not stored. Those of parameters without a definition, which no
// user can choose, are kept only if they must never change.
func missing(stored []value, state []byte, definitions []templates.Definition) []value {
	var out []value
	for _, p := range tfstate.Parameters(state) {
		i := slices.IndexFunc(definitions,
			func(d templates.Definition) bool { return d.Name == p.Name || d.Name == templates.AnyName })
		if has(stored, p.Name) || i < 0 && p.Mutable || i >= 0 && definitions[i].Ephemeral {
			continue
		}
		if len(p.Value) <= templates.MaxValue {
			out = append(out, value{sdk.ParameterValue{
				Name: database.Text(p.Name), Value: database.Text(p.Value),
			}, true})
		}
	}
	return out
}

// lostValues returns which given parameters that cannot be changed have a previous value that the version's form no
// longer allows for the other answers. It evaluates the form, and so must not be called in a transaction.
func (s *Service) lostValues(
	ctx context.Context, w dbsqlc.Workspace, t dbsqlc.Template, req buildRequest,
) (map[string]bool, error) {
	if req.transition != sdk.TransitionStart || len(req.given) == 0 || w.LatestBuildID == nil || s.opts.Forms == nil {
		return nil, nil
	}
	q := s.opts.DB.Queries
	version, _, err := chooseVersion(ctx, q, w, t, w.LatestVersionID, req)
	if err != nil {
		return nil, err
	}
	definitions, err := templates.Definitions(ctx, q, version.ID)
	if err != nil {
		return nil, err
	}
	stored, found, err := s.valuesOf(ctx, q, w.ID, *w.LatestBuildID, definitions)
	if err != nil {
		return nil, err
	}
	answers, before := map[string]string{}, map[string]string{}
	for _, v := range slices.Concat(stored, found) {
		answers[v.Name], before[v.Name] = v.Value, v.Value
	}
	for _, v := range req.given {
		answers[v.Name] = v.Value
	}
	gone := map[string]bool{}
	for _, d := range definitions {
		previous, existed := before[d.Name]
		if !existed || d.Mutable || d.Ephemeral || !d.Dynamic || answers[d.Name] == previous {
			continue
		}
		allowed, err := s.opts.Forms.Allows(ctx, version.ID, w.OwnerID, answers, d.Name, previous)
		if err != nil {
			return nil, err
		}
		gone[d.Name] = !allowed
	}
	return gone, nil
}

// mark tells apart the values of a new build: those that the template computed for the build before, and those that
// someone chose.
func mark(values []sdk.ParameterValue, carried map[string]bool, chosen []sdk.ParameterValue) []value {
	out := make([]value, len(values))
	for i, v := range values {
		fresh := slices.ContainsFunc(chosen, func(c sdk.ParameterValue) bool { return c.Name == v.Name })
		out[i] = value{v, carried[v.Name] && !fresh}
	}
	return out
}

func plain(values []value) []sdk.ParameterValue {
	out := make([]sdk.ParameterValue, len(values))
	for i, v := range values {
		out[i] = v.ParameterValue
	}
	return out
}

func computed(values []value) map[string]bool {
	out := map[string]bool{}
	for _, v := range values {
		if v.computed {
			out[v.Name] = true
		}
	}
	return out
}

// storeValues stores those values that a build does not have yet.
func storeValues(ctx context.Context, q *dbsqlc.Queries, build uuid.UUID, values []value) error {
	if len(values) == 0 {
		return nil
	}
	p := dbsqlc.InsertBuildParametersParams{WorkspaceBuildID: build}
	for _, v := range values {
		p.Names, p.ParameterValues, p.Computed = append(p.Names, v.Name), append(p.ParameterValues,
			v.Value), append(p.Computed, v.computed)
	}
	if err := q.InsertBuildParameters(ctx, p); err != nil {
		return fmt.Errorf("store parameters: %w", err)
	}
	return nil
}

// storeComputed stores the values that the template of a build computed, so that later builds keep them.
func (h buildHandler) storeComputed(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, state []byte,
) error {
	definitions, err := templates.Definitions(ctx, q, b.TemplateVersionID)
	if err != nil {
		return err
	}
	if err := storeValues(ctx, q, b.ID, missing(nil, state, definitions)); err != nil {
		return err
	}
	gone := dbsqlc.DeleteVanishedParametersParams{WorkspaceBuildID: b.ID, Found: []string{}}
	for _, p := range tfstate.Parameters(state) {
		gone.Found = append(gone.Found, p.Name)
	}
	if err := q.DeleteVanishedParameters(ctx, gone); err != nil {
		return fmt.Errorf("delete parameters that vanished: %w", err)
	}
	return nil
}
