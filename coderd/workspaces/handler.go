package workspaces

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// buildHandler runs builds.
type buildHandler struct{ *Service }

var transitions = map[sdk.Transition]provisionerpb.Transition{
	sdk.TransitionStart:  provisionerpb.Transition_TRANSITION_START,
	sdk.TransitionStop:   provisionerpb.Transition_TRANSITION_STOP,
	sdk.TransitionDelete: provisionerpb.Transition_TRANSITION_DELETE,
}

func (h buildHandler) Offer(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, offer *provisionerpb.Offer,
) error {
	b, err := q.GetBuildOffer(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	consented, err := h.consented(ctx, q, job, b)
	if err != nil {
		return err
	}
	metadata, err := h.metadata(ctx, q, b, consented)
	if err != nil {
		return err
	}
	build := &provisionerpb.WorkspaceBuild{
		Transition: transitions[sdk.Transition(b.Transition)], Metadata: metadata, LogLevel: b.LogLevel,
		Parameters:         parameterValues(b.ParameterNames, b.ParameterValues),
		PreviousParameters: parameterValues(b.PreviousNames, b.PreviousValues),
		Unknown:            b.UnknownResources, Tainted: b.TaintedResources,
	}
	for i, name := range b.VariableNames {
		build.Variables = append(build.Variables, &provisionerpb.VariableValue{
			Name: name, Value: b.VariableValues[i], Sensitive: b.VariablesSensitive[i],
		})
	}
	if build.State, err = h.opts.States.Open(b.WorkspaceID, b.State); err != nil {
		return err
	}
	build.Replacement = replacement(b)
	offer.Job = &provisionerpb.Offer_WorkspaceBuild{WorkspaceBuild: build}
	if sdk.Transition(b.Transition) == sdk.TransitionDelete && len(build.State) == 0 {
		if err := h.sayLeft(ctx, q, job, b); err != nil {
			return err
		}
	}
	if sdk.Transition(b.Transition) != sdk.TransitionStart {
		return agents.Shutdown(ctx, q, b.WorkspaceID)
	}
	if b.HasQuotas && b.OwnerID != sdk.PrebuildsOwnerID {
		build.Quota, err = readQuota(ctx, q, dbsqlc.GetQuotaParams{
			OrganizationID: b.OrganizationID, OwnerID: b.OwnerID, ExceptID: b.WorkspaceID,
		})
	}
	return err
}

// parameterValues returns parameters that the database lists as names and values.
func parameterValues(names, values []string) (out []*provisionerpb.ParameterValue) {
	for i, name := range names {
		out = append(out, &provisionerpb.ParameterValue{Name: name, Value: values[i]})
	}
	return out
}

// consented reports whether the build gets its owner's credentials, and stores and logs that it does not.
func (h buildHandler) consented(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, b dbsqlc.GetBuildOfferRow,
) (bool, error) {
	if b.OwnerID == sdk.PrebuildsOwnerID { // has none
		return false, nil
	}
	consented, err := consents.Hold(ctx, q, b.OwnerID, b.TemplateID)
	if err != nil || consented != b.CredentialsWithheld { // as it is stored, perhaps by an offer that did not arrive
		return consented, err
	}
	if err := q.SetBuildWithheld(ctx, dbsqlc.SetBuildWithheldParams{
		ID: b.ID, CredentialsWithheld: !consented,
	}); err != nil {
		return false, fmt.Errorf("mark build: %w", err)
	}
	if consented {
		return true, nil
	}
	text := fmt.Sprintf("This build gets no credentials of %[1]s (session token, SSH key, external logins, secrets), because %[1]s has not started a workspace of the template %[2]q themselves, or has revoked that.",
		b.Username, b.TemplateName)
	if sdk.Transition(b.Transition) == sdk.TransitionStart {
		text += fmt.Sprintf(" To give them to the workspaces of this template, %s runs: coder restart %s", b.Username,
			shell.POSIX(b.WorkspaceName))
	}
	return false, h.opts.Jobs.Warn(ctx, q, job, "Preparing", text)
}

// metadata returns what the template may read. It contains the owner's credentials only if the owner consents, and the
// template's source names them.
func (h buildHandler) metadata(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildOfferRow, consented bool,
) (_ *provisionerpb.Metadata, err error) {
	m := templates.OwnerMetadata(h.opts.AccessURL, dbsqlc.GetTemplateOwnerFactsRow{
		ID: b.OwnerID, Username: b.Username, Email: b.Email, Name: b.FullName, LoginType: b.LoginType, Roles: b.Roles,
		SshPublicKey: b.SshPublicKey,
	}, b.Groups)
	m.WorkspaceId, m.WorkspaceName, m.BuildId = b.WorkspaceID[:], b.WorkspaceName, b.ID[:]
	m.TemplateId, m.TemplateName, m.TemplateVersion = b.TemplateID[:], b.TemplateName, b.VersionName
	m.PrebuildClaim = b.Claims
	if m.IdToken, err = h.idToken(ctx, q, b, consented); err != nil {
		return nil, err
	}
	if b.OwnerID == sdk.PrebuildsOwnerID { // who has no keys, tokens and logins
		m.Prebuild = true
		return m, nil
	}
	privateKey := consented && b.NamesOwnerSshPrivateKey
	if b.SshPublicKey == "" || privateKey {
		key, err := h.opts.Users.SSHKey(ctx, q, b.OwnerID)
		if err != nil {
			return nil, fmt.Errorf("read owner's SSH key: %w", err)
		}
		m.OwnerSshPublicKey = key.Public
		if privateKey {
			m.OwnerSshPrivateKey = key.Private.Reveal()
		}
	}
	m.ExternalAuthTokens = map[string]string{}
	if !consented {
		return m, nil
	}
	if b.NamesOwnerSessionToken {
		token, err := h.opts.Users.SessionFor(ctx, q, b.OwnerID, b.WorkspaceID)
		if err != nil {
			return nil, fmt.Errorf("make owner's session: %w", err)
		}
		m.OwnerSessionToken = token.Reveal()
	}
	if b.NamesOwnerOidcAccessToken {
		token, err := h.opts.ExternalAuth.Stored(ctx, q, b.OwnerID, extauth.SignInOIDC)
		if err != nil {
			return nil, err
		}
		m.OwnerOidcAccessToken = token.Reveal()
	}
	if b.AsksLogins {
		// A build that requires the login cannot start without it; ending a workspace must always be possible.
		starting := sdk.Transition(b.Transition) == sdk.TransitionStart
		if m.ExternalAuthTokens, err = h.opts.ExternalAuth.BuildTokens(ctx, q, b.OwnerID, b.TemplateVersionID, starting); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// idToken returns the ID token that the template asks for, or "". Each build gets it, also one that the owner did not
// begin or consent to: it is the template's, and its build could not delete without it what it has created. It then
// names no owner.
func (h buildHandler) idToken(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildOfferRow, consented bool,
) (string, error) {
	if b.IdentityBuildAudience == "" || h.opts.Identity == nil {
		return "", nil
	}
	of := identity.Build{
		OrganizationID: b.OrganizationID, Organization: b.OrganizationName, TemplateID: b.TemplateID,
		Template:    b.TemplateName,
		WorkspaceID: b.WorkspaceID, Workspace: b.WorkspaceName, Number: b.BuildNumber,
		Transition: sdk.Transition(b.Transition),
		Audience:   b.IdentityBuildAudience,
	}
	if consented {
		of.Owner = &identity.Owner{ID: b.OwnerID, Name: b.Username, Email: b.Email}
	}
	token, err := h.opts.Identity.ForBuild(ctx, q, of)
	if err != nil {
		return "", fmt.Errorf("issue build's ID token: %w", err)
	}
	return token.Token.Reveal(), nil
}

func (h buildHandler) Checkpoint(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, state []byte,
) error {
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
func (h buildHandler) storeState(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, state []byte,
) error {
	if len(state) == 0 {
		return nil
	}
	if err := q.UpdateBuildState(ctx, dbsqlc.UpdateBuildStateParams{
		ID: b.ID, State: h.opts.States.Seal(b.WorkspaceID, state),
	}); err != nil {
		return fmt.Errorf("store state: %w", err)
	}
	return nil
}

func (h buildHandler) Resources(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, resources []*provisionerpb.Resource,
) error {
	b, err := q.GetBuildByJob(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	if b.InstantClaim && !complete(resources) {
		return nil // the agents have all that the plan of the claim promised
	}
	if _, err := agents.Store(ctx, q, h.batch(b, resources, false)); err != nil {
		return err
	}
	return q.NotifyWorkspace(ctx, b.WorkspaceID)
}

// complete reports whether the build has described all agents completely.
func complete(resources []*provisionerpb.Resource) bool {
	for _, r := range resources {
		for _, a := range r.GetAgents() {
			if !a.GetComplete() {
				return false
			}
		}
	}
	return true
}

func (h buildHandler) batch(b dbsqlc.GetBuildByJobRow, resources []*provisionerpb.Resource, final bool) agents.Batch {
	return agents.Batch{
		JobID: b.JobID, Transition: sdk.Transition(b.Transition), WorkspaceID: b.WorkspaceID,
		BuildNumber: b.BuildNumber, Resources: resources, Final: final,
	}
}

func (h buildHandler) Finish(
	ctx context.Context, q *dbsqlc.Queries, job dbsqlc.ProvisionerJob, result *provisionerpb.Result,
) error {
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
	var refused *refusal
	if refusedReplacing(b, result) {
		if refused, err = h.refuse(ctx, q, b, built); err != nil {
			return err
		}
	}
	stored := dbsqlc.FinishBuildParams{ID: b.ID}
	if state := built.GetState(); len(state) > 0 {
		stored.State = h.opts.States.Seal(b.WorkspaceID, state)
	}
	if err := h.storeUnsettled(ctx, q, b, built, succeeded); err != nil {
		return err
	}
	var kept []uuid.UUID
	if succeeded || len(built.GetResources()) > 0 && (refused == nil || refused.running) {
		batch := h.batch(b, built.GetResources(), true)
		batch.Warn = func(text string) error { return h.opts.Jobs.Warn(ctx, q, job, "Storing the result", text) }
		if kept, err = agents.Store(ctx, q, batch); err != nil {
			return err
		}
		cost := int32(min(costOf(built.GetResources()), math.MaxInt32))
		stored.DailyCost = &cost
	}
	over := ""
	if succeeded && sdk.Transition(b.Transition) == sdk.TransitionStart && !unclaimed(w) {
		if over, err = overQuota(ctx, q, w, costOf(built.GetResources())); err != nil {
			return err
		}
		succeeded = over == ""
	}
	if succeeded && sdk.Transition(b.Transition) != sdk.TransitionDelete {
		if err := h.storeComputed(ctx, q, b, built.GetState()); err != nil {
			return err
		}
	}
	if succeeded {
		if err := h.succeeded(ctx, q, b, w, &stored); err != nil {
			return err
		}
	}
	if stored.State != nil || stored.DailyCost != nil || stored.Bounded {
		if err := q.FinishBuild(ctx, stored); err != nil {
			return fmt.Errorf("store build: %w", err)
		}
	}
	// A job that was canceled before it began has changed nothing. A claim leaves agents that are no longer the pool's.
	if job.StartedAt != nil || b.Claims {
		if refused == nil && (!succeeded || sdk.Transition(b.Transition) != sdk.TransitionStart) {
			kept = nil
		}
		if err := agents.Revoke(ctx, q, w.ID, kept); err != nil {
			return err
		}
	}
	if unclaimed(w) && sdk.Transition(b.Transition) == sdk.TransitionStart {
		if err := h.storePrebuilt(ctx, q, w.ID, built, succeeded); err != nil {
			return err
		}
	}
	if err := h.recordResult(ctx, q, b, w, result.GetCanceled(), succeeded); err != nil {
		return err
	}
	if err := h.notifyResult(ctx, q, b, w, result.GetCanceled(), succeeded, refused.sentence()); err != nil {
		return err
	}
	if created := built.GetCreated(); succeeded && len(created) > 0 &&
		sdk.Transition(b.Transition) == sdk.TransitionStop {
		if err := q.UpdateBuildCreated(ctx, dbsqlc.UpdateBuildCreatedParams{
			ID: b.ID, Created: visible(created),
		}); err != nil {
			return fmt.Errorf("store what the stop created: %w", err)
		}
	}
	if refused != nil {
		if err := refused.store(ctx, q, b); err != nil {
			return err
		}
	}
	if succeeded && sdk.Transition(b.Transition) == sdk.TransitionStop {
		if err := h.stoppedFor(ctx, q, w, job); err != nil {
			return err
		}
	}
	if over == "" {
		return nil
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

// succeeded applies the effect of the build's transition. What it means for the build itself, it adds to stored.
func (h buildHandler) succeeded(ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, w dbsqlc.Workspace, stored *dbsqlc.FinishBuildParams) error {
	switch sdk.Transition(b.Transition) {
	case sdk.TransitionStart:
		if unclaimed(w) { // runs until a user claims it
			return nil
		}
		_, f, err := h.factsOf(ctx, q, w.ID)
		if err != nil {
			return err
		}
		bounds, deadline := f.Started(h.opts.Now())
		stored.Bounded, stored.Deadline, stored.MaxDeadline, stored.TtlMs = true, deadline, bounds.Max, bounds.TTL.Milliseconds()
		stored.TtlFrom, stored.MaxFrom, stored.BoundedAt = string(bounds.TTLFrom), string(bounds.MaxFrom), &f.RulesAt
		return nil
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
