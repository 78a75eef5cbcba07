package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

// Seal implements jobs.StateHandler.
func (h buildHandler) Seal(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, data []byte,
) ([]byte, error) {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return nil, fmt.Errorf("read build: %w", err)
	}
	return h.opts.States.Seal(b.WorkspaceID, data), nil
}

// Open implements jobs.StateHandler.
func (h buildHandler) Open(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, data []byte,
) ([]byte, error) {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return nil, fmt.Errorf("read build: %w", err)
	}
	return h.opts.States.Open(b.WorkspaceID, data)
}

// State implements jobs.StateHandler.
func (h buildHandler) State(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob) ([]byte, error) {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return nil, fmt.Errorf("read build: %w", err)
	}
	return h.state(ctx, q, b.WorkspaceID, b.ID)
}

// Lost implements jobs.StateHandler.
func (h buildHandler) Lost(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, changes []*provisionerpb.Change, result *provisionerpb.Result) error {
	if len(changes) == 0 {
		return nil
	}
	state, err := h.State(ctx, q, job)
	if err != nil {
		return err
	}
	lost, state := tfstate.Settle(state, changes, false)
	result.Of = &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
		State: state, InFlight: strings.Join(slices.Concat(lost.Unknown, lost.Tainted), ", "), Unknown: lost.Unknown,
		Tainted: lost.Tainted,
	}}
	if sentence := lost.Sentence(); sentence != "" {
		result.Error = strings.TrimSpace(result.GetError() + " " + sentence)
	}
	return nil
}

// sayLeft names in the log of a build that deletes a workspace without its state which resources stay behind.
func (h buildHandler) sayLeft(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, b dbsqlc.GetBuildOfferRow,
) error {
	if job.Epoch > 1 { // an offer that did not arrive has said it
		return nil
	}
	stored, err := q.GetStateBefore(ctx, dbsqlc.GetStateBeforeParams{
		WorkspaceID: b.WorkspaceID, BuildNumber: b.BuildNumber,
	})
	if database.IsNotFound(err) { // nothing was built
		return nil
	}
	if err != nil {
		return fmt.Errorf("read earlier state: %w", err)
	}
	text := "The workspace's resources stay behind, and its state, which lists them, cannot be read. Look for them where they were made."
	state, err := h.opts.States.Open(b.WorkspaceID, stored)
	if err == nil {
		left, err := tfstate.Resources(state)
		if err == nil {
			if len(left) == 0 {
				return nil
			}
			text = "These resources stay behind, and nothing manages them any more: " + strings.Join(left, ", ") + ". Remove them where they were made."
		}
	}
	return h.opts.Jobs.Warn(ctx, q, job, "Preparing", text)
}

// unsettledBefore returns what the previous build left unsettled.
func (h buildHandler) unsettledBefore(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow,
) (tfstate.Outcome, error) {
	before, err := q.GetUnsettledBefore(ctx, dbsqlc.GetUnsettledBeforeParams{
		WorkspaceID: b.WorkspaceID, BuildNumber: b.BuildNumber,
	})
	if database.IsNotFound(err) {
		return tfstate.Outcome{}, nil
	}
	if err != nil {
		return tfstate.Outcome{}, fmt.Errorf("read what earlier builds left: %w", err)
	}
	return tfstate.Outcome{Unknown: before.UnknownResources, Tainted: before.TaintedResources}, nil
}

// storeUnsettled keeps what a build left unsettled and, unless it succeeded, what earlier builds had left and its state
// does not settle.
func (h buildHandler) storeUnsettled(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, built *provisionerpb.BuildResult, succeeded bool,
) error {
	left := tfstate.Outcome{Unknown: built.GetUnknown(), Tainted: built.GetTainted()}
	if !succeeded {
		before, err := h.unsettledBefore(ctx, q, b)
		if err != nil {
			return err
		}
		left.Unknown, left.Tainted = merged(left.Unknown, before.Unknown), merged(left.Tainted,
			tfstate.Tainted(built.GetState(), before.Tainted))
	}
	if len(left.Unknown)+len(left.Tainted) == 0 {
		return nil
	}
	if err := q.UpdateBuildUnsettled(ctx, dbsqlc.UpdateBuildUnsettledParams{
		ID: b.ID, Unknown: visible(left.Unknown), Tainted: visible(left.Tainted),
	}); err != nil {
		return fmt.Errorf("store what the build left: %w", err)
	}
	return nil
}

// merged returns the texts of both, sorted, each once.
func merged(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// visible returns texts in a form that PostgreSQL accepts.
func visible(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		out = append(out, database.Visible(text))
	}
	return out
}
