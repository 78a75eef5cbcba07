package workspaces

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// noBudget is the budget of users in an organization without quotas.
const noBudget = -1

// overQuota returns a sentence if a build that needs cost credits a day exceeds what the owner of the workspace may
// use, otherwise "". Until the transaction ends, no other build of the owner is judged.
func overQuota(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, cost int64) (string, error) {
	if cost <= 0 {
		return "", nil
	}
	if err := q.LockQuota(ctx, dbsqlc.LockQuotaParams{
		OrganizationID: w.OrganizationID, OwnerID: w.OwnerID,
	}); err != nil {
		return "", fmt.Errorf("lock quota: %w", err)
	}
	quota, err := quotaFor(ctx, q, w)
	if err != nil || quota == nil {
		return "", err
	}
	owner, err := q.GetUser(ctx, w.OwnerID)
	if err != nil {
		return "", fmt.Errorf("read owner: %w", err)
	}
	return quota.Over(owner.Username, cost), nil
}

// quotaFor returns what the owner uses apart from this workspace, and the limit; nil if the organization has no quotas.
func quotaFor(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace) (*provisionerpb.Quota, error) {
	limited, err := q.HasQuotas(ctx, w.OrganizationID)
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	if !limited { // costs are summed up only where they matter
		return nil, nil
	}
	return readQuota(ctx, q, dbsqlc.GetQuotaParams{
		OrganizationID: w.OrganizationID, OwnerID: w.OwnerID, ExceptID: w.ID,
	})
}

func readQuota(ctx context.Context, q *dbsqlc.Queries, p dbsqlc.GetQuotaParams) (*provisionerpb.Quota, error) {
	quota, err := q.GetQuota(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read quota: %w", err)
	}
	return &provisionerpb.Quota{Used: quota.Used, Allowance: quota.Allowance}, nil
}

// affordable returns a fault if the cost of a start is known before it runs, and exceeds the quota: nothing changes
// since the last start.
func affordable(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, version uuid.UUID, req buildRequest) error {
	if req.transition != sdk.TransitionStart || len(req.given) > 0 || req.preset != uuid.Nil {
		return nil
	}
	if w.LatestBuildID == nil {
		return nil
	}
	last, err := q.GetLatestStartCost(ctx, w.ID)
	if database.IsNotFound(err) || err == nil && last.TemplateVersionID != version {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cost of the last start: %w", err)
	}
	over, err := overQuota(ctx, q, w, int64(last.DailyCost))
	if err != nil || over == "" {
		return err
	}
	return fault.New(fault.Conflict, "%s", over).
		WithDetail("Stop or delete another workspace, or ask an administrator for a higher quota.")
}

// getQuota serves what a user's workspaces in an organization cost, and may cost. The user and those who may see the
// account read it.
func (s *Service) getQuota(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.opts.DB.Queries, actor)
	if err != nil {
		return err
	}
	u, err := s.opts.Users.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	quota, err := s.opts.DB.GetQuota(ctx, dbsqlc.GetQuotaParams{OrganizationID: org.ID, OwnerID: u.ID})
	if err != nil {
		return fmt.Errorf("read quota: %w", err)
	}
	limited, err := s.opts.DB.HasQuotas(ctx, org.ID)
	if err != nil {
		return fmt.Errorf("read quotas: %w", err)
	}
	out := sdk.WorkspaceQuota{CreditsConsumed: quota.Used, Budget: noBudget}
	if limited {
		out.Budget = quota.Allowance
	}
	return httpapi.Write(w, http.StatusOK, out)
}
