package workspaces

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/agents"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/extauth"
	"github.com/codermesh/codermesh/coderd/jobs"
	"github.com/codermesh/codermesh/coderd/templates"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/provisionerd/tfstate"
)

// buildHandler runs builds.
type buildHandler struct{ *Service }

var transitions = map[sdk.Transition]provisionerpb.Transition{
	sdk.TransitionStart:  provisionerpb.Transition_TRANSITION_START,
	sdk.TransitionStop:   provisionerpb.Transition_TRANSITION_STOP,
	sdk.TransitionDelete: provisionerpb.Transition_TRANSITION_DELETE,
}

func (h buildHandler) Offer(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, offer *provisionerpb.Offer) error {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	w, err := q.GetWorkspace(ctx, b.WorkspaceID)
	if err != nil {
		return fmt.Errorf("read workspace: %w", err)
	}
	v, err := q.GetTemplateVersion(ctx, b.TemplateVersionID)
	if err != nil {
		return fmt.Errorf("read template version: %w", err)
	}
	metadata, err := h.metadata(ctx, q, b, w, v)
	if err != nil {
		return err
	}
	variables, err := templates.Variables(ctx, q, v.ID)
	if err != nil {
		return err
	}
	build := &provisionerpb.WorkspaceBuild{
		Transition: transitions[sdk.Transition(b.Transition)], Variables: variables, Metadata: metadata, LogLevel: b.LogLevel,
	}
	if build.State, err = h.state(ctx, q, w.ID, b.ID); err != nil {
		return err
	}
	values, err := q.ListBuildParameters(ctx, b.ID)
	if err != nil {
		return fmt.Errorf("list parameters: %w", err)
	}
	for _, v := range values {
		build.Parameters = append(build.Parameters, &provisionerpb.ParameterValue{Name: v.Name, Value: v.Value})
	}
	previous, err := q.ListPreviousBuildParameters(ctx, dbsqlc.ListPreviousBuildParametersParams{WorkspaceID: w.ID, BuildNumber: b.BuildNumber})
	if err != nil {
		return fmt.Errorf("list previous parameters: %w", err)
	}
	for _, v := range previous {
		build.PreviousParameters = append(build.PreviousParameters, &provisionerpb.ParameterValue{Name: v.Name, Value: v.Value})
	}
	unsettled, err := h.unsettledBefore(ctx, q, b)
	if err != nil {
		return err
	}
	build.Unknown, build.Tainted = unsettled.Unknown, unsettled.Tainted
	offer.Job = &provisionerpb.Offer_WorkspaceBuild{WorkspaceBuild: build}
	if sdk.Transition(b.Transition) == sdk.TransitionStart {
		build.Quota, err = quotaFor(ctx, q, w)
	} else {
		err = agents.Shutdown(ctx, q, w.ID)
	}
	if err != nil {
		return err
	}
	return q.NotifyWorkspace(ctx, w.ID)
}

// metadata returns what the template may read. It contains the owner's secrets only if the template's source names them.
func (h buildHandler) metadata(ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, w dbsqlc.Workspace, v dbsqlc.TemplateVersion) (*provisionerpb.Metadata, error) {
	m, err := templates.Metadata(ctx, q, h.opts.AccessURL, w.OrganizationID, w.OwnerID)
	if err != nil {
		return nil, err
	}
	t, err := q.GetTemplate(ctx, w.TemplateID)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	m.WorkspaceId, m.WorkspaceName, m.BuildId = w.ID[:], w.Name, b.ID[:]
	m.TemplateId, m.TemplateName, m.TemplateVersion = t.ID[:], t.Name, v.Name
	key, err := h.opts.Users.SSHKey(ctx, q, w.OwnerID)
	if err != nil {
		return nil, fmt.Errorf("read owner's SSH key: %w", err)
	}
	m.OwnerSshPublicKey = key.Public
	if v.NamesOwnerSshPrivateKey {
		m.OwnerSshPrivateKey = key.Private.Reveal()
	}
	if v.NamesOwnerSessionToken {
		token, err := h.opts.Users.SessionFor(ctx, q, w.OwnerID, w.ID)
		if err != nil {
			return nil, fmt.Errorf("make owner's session: %w", err)
		}
		m.OwnerSessionToken = token.Reveal()
	}
	if v.NamesOwnerOidcAccessToken {
		token, err := h.opts.ExternalAuth.Stored(ctx, q, w.OwnerID, extauth.SignInOIDC)
		if err != nil {
			return nil, err
		}
		m.OwnerOidcAccessToken = token.Reveal()
	}
	// A build that requires the login cannot start without it; ending a workspace must always be possible.
	starting := sdk.Transition(b.Transition) == sdk.TransitionStart
	if m.ExternalAuthTokens, err = h.opts.ExternalAuth.BuildTokens(ctx, q, w.OwnerID, v.ID, starting); err != nil {
		return nil, err
	}
	return m, nil
}

func (h buildHandler) Checkpoint(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, state []byte) error {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	return h.storeState(ctx, q, b, state)
}

// state reads a build's state.
func (s *Service) state(ctx context.Context, q *dbsqlc.Queries, workspace, build uuid.UUID) ([]byte, error) {
	stored, err := q.GetBuildState(ctx, build)
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return s.opts.States.Open(workspace, stored)
}

// storeState keeps the newest state that is not empty: a job that failed before it had one leaves the stored state.
func (h buildHandler) storeState(ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, state []byte) error {
	if len(state) == 0 {
		return nil
	}
	if err := q.UpdateBuildState(ctx, dbsqlc.UpdateBuildStateParams{ID: b.ID, State: h.opts.States.Seal(b.WorkspaceID, state)}); err != nil {
		return fmt.Errorf("store state: %w", err)
	}
	return nil
}

func (h buildHandler) Resources(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, resources []*provisionerpb.Resource) error {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	if _, err := agents.Store(ctx, q, h.log, h.batch(b, resources, false)); err != nil {
		return err
	}
	return q.NotifyWorkspace(ctx, b.WorkspaceID)
}

func (h buildHandler) batch(b dbsqlc.GetBuildByJobRow, resources []*provisionerpb.Resource, final bool) agents.Batch {
	return agents.Batch{
		JobID: b.JobID, Transition: sdk.Transition(b.Transition), WorkspaceID: b.WorkspaceID, BuildNumber: b.BuildNumber, Resources: resources, Final: final,
	}
}

func (h buildHandler) Finish(ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result) error {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	w, err := q.LockWorkspace(ctx, b.WorkspaceID)
	if err != nil {
		return fmt.Errorf("lock workspace: %w", err)
	}
	succeeded := result.GetError() == "" && !result.GetCanceled()
	built := result.GetWorkspaceBuild()
	if err := h.storeState(ctx, q, b, built.GetState()); err != nil {
		return err
	}
	if err := h.storeUnsettled(ctx, q, b, tfstate.Outcome{Unknown: built.GetUnknown(), Tainted: built.GetTainted()}, succeeded); err != nil {
		return err
	}
	var kept []uuid.UUID
	if succeeded || len(built.GetResources()) > 0 {
		if kept, err = h.storeResources(ctx, q, b, built.GetResources()); err != nil {
			return err
		}
	}
	over := ""
	if succeeded && sdk.Transition(b.Transition) == sdk.TransitionStart {
		if over, err = overQuota(ctx, q, w, costOf(built.GetResources())); err != nil {
			return err
		}
		succeeded = over == ""
	}
	if succeeded {
		if err := h.succeeded(ctx, q, b, w); err != nil {
			return err
		}
	}
	// A job that was canceled before it began has changed nothing.
	if job.StartedAt != nil {
		if !succeeded || sdk.Transition(b.Transition) != sdk.TransitionStart {
			kept = nil
		}
		if err := agents.Revoke(ctx, q, w.ID, kept); err != nil {
			return err
		}
	}
	if err := h.recordResult(ctx, q, b, w, result.GetCanceled(), succeeded); err != nil {
		return err
	}
	if err := h.tellResult(ctx, q, b, w, result.GetCanceled(), succeeded); err != nil {
		return err
	}
	if succeeded && sdk.Transition(b.Transition) == sdk.TransitionStop {
		if err := h.startAgain(ctx, q, w, job); err != nil {
			return err
		}
	}
	if err := q.NotifyWorkspace(ctx, w.ID); err != nil || over == "" {
		return err
	}
	return &jobs.Rejected{Reason: over}
}

// costOf returns what resources cost, in credits a day.
func costOf(resources []*provisionerpb.Resource) (cost int64) {
	for _, r := range resources {
		cost += int64(r.GetDailyCost())
	}
	return cost
}

func (h buildHandler) storeResources(ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, resources []*provisionerpb.Resource) ([]uuid.UUID, error) {
	kept, err := agents.Store(ctx, q, h.log, h.batch(b, resources, true))
	if err != nil {
		return nil, err
	}
	cost := int32(min(costOf(resources), math.MaxInt32))
	if err := q.UpdateBuildCost(ctx, dbsqlc.UpdateBuildCostParams{ID: b.ID, DailyCost: cost}); err != nil {
		return nil, fmt.Errorf("store cost: %w", err)
	}
	return kept, nil
}

// succeeded applies the effect of the build's transition.
func (h buildHandler) succeeded(ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, w dbsqlc.Workspace) error {
	switch sdk.Transition(b.Transition) {
	case sdk.TransitionStart:
		_, f, err := h.factsOf(ctx, q, w.ID)
		if err != nil {
			return err
		}
		bounds, deadline := f.Started(h.opts.Now())
		return storeBounds(ctx, q, b.ID, f, bounds, deadline)
	case sdk.TransitionDelete:
		if err := q.MarkWorkspaceDeleted(ctx, w.ID); err != nil {
			return fmt.Errorf("mark workspace deleted: %w", err)
		}
	}
	if err := q.DeleteWorkspaceKeys(ctx, &w.ID); err != nil {
		return fmt.Errorf("delete session token: %w", err)
	}
	return nil
}
