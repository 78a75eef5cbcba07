package workspaces

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// unclaimed reports whether a workspace is prebuilt and no user has claimed it.
func unclaimed(w dbsqlc.Workspace) bool { return w.OwnerID == sdk.PrebuildsOwnerID }

// refusePrebuilt is the fault of a change to a prebuilt workspace: what a user gets must be what the template makes.
func refusePrebuilt(w dbsqlc.Workspace) error {
	return fault.New(fault.Conflict, "The workspace %q is prebuilt and belongs to no user yet.", w.Name).
		WithDetail("It can only be deleted. The server then creates another one, as long as the template's preset asks for it.")
}

// reconcile creates and deletes prebuilt workspaces until each template has those that its presets ask for. Several
// servers may call it at once.
func (s *Service) reconcile(ctx context.Context, now time.Time) error {
	settings, err := storedPrebuilds(ctx, s.opts.DB.Queries)
	if err != nil || settings.ReconciliationPaused {
		return err
	}
	templates, err := s.opts.DB.ListPrebuildTemplates(ctx)
	if err != nil {
		return fmt.Errorf("list templates with prebuilt workspaces: %w", err)
	}
	for _, id := range templates {
		if err := s.reconcileTemplate(ctx, id, settings.ResumedAt, now); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.log.ErrorContext(ctx, "cannot reconcile prebuilt workspaces", "template", id, "err", err)
		}
	}
	return nil
}

// refusedPrebuild is why a preset's workspaces cannot be created.
type refusedPrebuild struct {
	preset uuid.UUID
	err    error
}

func (s *Service) reconcileTemplate(ctx context.Context, id uuid.UUID, since, now time.Time) error {
	var refused []refusedPrebuild
	err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		refused = nil
		locked, err := q.TryLockPrebuilds(ctx, id)
		if err != nil || !locked {
			return err
		}
		t, err := q.HoldTemplate(ctx, id)
		if err != nil && !database.IsNotFound(err) {
			return fmt.Errorf("hold template: %w", err)
		}
		pools := map[uuid.UUID]*policy.Pool{}
		var order []uuid.UUID
		if err == nil && t.Deprecated == "" {
			rows, err := q.ListPrebuildPools(ctx, dbsqlc.ListPrebuildPoolsParams{TemplateID: id, Since: since})
			if err != nil {
				return fmt.Errorf("list presets: %w", err)
			}
			for _, row := range rows {
				p, err := poolOf(row.Prebuilds, row.Failures, row.FailedAt, row.PrebuildProblemAt, since)
				if err != nil {
					return err
				}
				p.InvalidatedAt = row.PrebuildsInvalidatedAt
				pools[row.ID], order = p, append(order, row.ID)
			}
		}
		rows, err := q.ListPrebuilt(ctx, id)
		if err != nil {
			return fmt.Errorf("list prebuilt workspaces: %w", err)
		}
		byPreset := map[uuid.UUID][]dbsqlc.ListPrebuiltRow{}
		for _, row := range rows {
			preset := uuid.Nil // of another version
			if row.PresetID != nil && pools[*row.PresetID] != nil {
				preset = *row.PresetID
			}
			byPreset[preset] = append(byPreset[preset], row)
		}
		for _, preset := range append(order, uuid.Nil) {
			create, remove := pools[preset].Reconcile(prebuiltOf(byPreset[preset]), now)
			for _, i := range remove {
				if err := s.deletePrebuilt(ctx, q, byPreset[preset][i].ID, now); err != nil {
					return err
				}
			}
			for range create {
				refusal, err := s.createPrebuilt(ctx, q, t, preset)
				if err != nil {
					return err
				}
				if refusal != nil {
					refused = append(refused, refusedPrebuild{preset, refusal})
					break
				}
			}
		}
		for _, r := range refused {
			s.log.WarnContext(ctx, "cannot create prebuilt workspace", "template", t.ID, "err", r.err)
			if err := q.SetPrebuildProblem(ctx, dbsqlc.SetPrebuildProblemParams{
				ID: r.preset, Problem: database.Text(r.err.Error()), At: now,
			}); err != nil {
				return fmt.Errorf("store problem: %w", err)
			}
		}
		return nil
	})
	return err
}

// poolOf returns what policy decides about. Problems from before the administrator resumed do not count.
func poolOf(
	stored []byte, failures int64, failedAt time.Time, problemAt *time.Time, since time.Time,
) (*policy.Pool, error) {
	p := &policy.Pool{Failures: int(failures), FailedAt: failedAt}
	if err := json.Unmarshal(stored, &p.Prebuilds); err != nil {
		return nil, fmt.Errorf("decode prebuilds of a preset: %w", err)
	}
	if problemAt != nil && problemAt.After(since) {
		p.ProblemAt = problemAt
	}
	return p, nil
}

func prebuiltOf(rows []dbsqlc.ListPrebuiltRow) []policy.Prebuilt {
	out := make([]policy.Prebuilt, len(rows))
	for i, row := range rows {
		out[i] = policy.Prebuilt{
			CreatedAt: row.CreatedAt, Transition: sdk.Transition(row.Transition), Status: sdk.JobStatus(row.Status),
			Ready: row.Ready, RetryAt: row.RetryAt,
		}
	}
	return out
}

// deletePrebuilt queues the deletion of a prebuilt workspace, unless a user is claiming it.
func (s *Service) deletePrebuilt(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID, now time.Time) error {
	w, err := q.LockPrebuilt(ctx, id)
	if database.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock prebuilt workspace: %w", err)
	}
	if _, err := s.build(ctx, q, w, buildRequest{
		transition: sdk.TransitionDelete, initiator: sdk.PrebuildsOwnerID, reason: sdk.ReasonAutoDelete, priority: priorityAutomatic,
	}); err != nil {
		return fmt.Errorf("delete prebuilt workspace: %w", err)
	}
	if _, err := q.PostponePolicy(ctx, dbsqlc.PostponePolicyParams{WorkspaceID: w.ID, At: now}); err != nil {
		return fmt.Errorf("postpone next deletion: %w", err)
	}
	return nil
}

// createPrebuilt queues a new prebuilt workspace. refused is why the template does not allow it; nothing is written
// then.
func (s *Service) createPrebuilt(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template, preset uuid.UUID,
) (refused, err error) {
	w := dbsqlc.Workspace{
		ID: uuid.New(), OrganizationID: t.OrganizationID, OwnerID: sdk.PrebuildsOwnerID, TemplateID: t.ID,
	}
	n, err := s.plan(ctx, q, w, buildRequest{
		transition: sdk.TransitionStart, version: t.ActiveVersionID, preset: preset, initiator: sdk.PrebuildsOwnerID, reason: sdk.ReasonInitiator, priority: priorityAutomatic,
	})
	if err == nil && strings.EqualFold(n.tags["scope"], "user") {
		err = fault.New(fault.Invalid,
			"The template's builds run on provisioners of the workspace's owner, and a prebuilt workspace has none.")
	}
	if err != nil {
		if fault.CodeOf(err) == fault.Internal {
			return nil, fmt.Errorf("create prebuilt workspace: %w", err)
		}
		return err, nil
	}
	made, err := q.InsertWorkspace(ctx, dbsqlc.InsertWorkspaceParams{
		ID: w.ID, OrganizationID: w.OrganizationID, OwnerID: w.OwnerID, TemplateID: t.ID,
		Name: "prebuild-" + strings.ToLower(rand.Text()[:10]), AutomaticUpdates: string(sdk.UpdatesNever),
	})
	if err != nil {
		return nil, fmt.Errorf("insert prebuilt workspace: %w", err)
	}
	if err := q.InsertPrebuilt(ctx, dbsqlc.InsertPrebuiltParams{WorkspaceID: made.ID, PresetID: &preset}); err != nil {
		return nil, fmt.Errorf("insert prebuilt workspace: %w", err)
	}
	entry := audit.OfWorkspace(dbsqlc.Workspace{}, made)
	entry.Action, entry.Kind, entry.By = audit.Create, audit.Workspace, audit.ByServer
	entry.Fields = map[string]any{"automatic_actor": audit.ByServer, "prebuilt": true}
	if err := s.record(ctx, q, entry, made); err != nil {
		return nil, err
	}
	if _, err := s.queue(ctx, q, made, n); err != nil {
		return nil, err
	}
	return nil, q.SetPrebuildProblem(ctx, dbsqlc.SetPrebuildProblemParams{ID: preset})
}

// claim gives the user a prebuilt workspace if there is one that is exactly what they ask for, and returns its id, or
// uuid.Nil. A request without a preset gets one of any preset whose values it names. p is the workspace that would be
// created instead. Two requests never get the same one: each skips what another transaction has locked.
func (s *Service) claim(ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, t dbsqlc.Template, p dbsqlc.InsertWorkspaceParams, req sdk.CreateWorkspaceRequest) (uuid.UUID, error) {
	preset := req.TemplateVersionPresetID
	if len(req.ProvisionerTags) > 0 || req.TemplateVersionID != uuid.Nil && req.TemplateVersionID != t.ActiveVersionID {
		return uuid.Nil, nil
	}
	pools, err := q.ListPrebuildPools(ctx, dbsqlc.ListPrebuildPoolsParams{TemplateID: t.ID})
	if err != nil {
		return uuid.Nil, fmt.Errorf("list presets: %w", err)
	}
	for _, row := range pools {
		if preset != uuid.Nil && row.ID != preset {
			continue
		}
		same, given, err := s.asPrebuilt(ctx, q, t, row.ID, req)
		if err != nil {
			return uuid.Nil, err
		}
		if !same {
			continue
		}
		if id, err := s.claimFrom(ctx, q, actor, t, p, row, given); err != nil || id != uuid.Nil {
			return id, err
		}
	}
	return uuid.Nil, nil
}

// claimFrom gives the user a prebuilt workspace of one preset, if one is ready, and builds it with the given values.
func (s *Service) claimFrom(
	ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, t dbsqlc.Template, p dbsqlc.InsertWorkspaceParams, row dbsqlc.ListPrebuildPoolsRow, given []sdk.ParameterValue,
) (uuid.UUID, error) {
	pool, err := poolOf(row.Prebuilds, 0, time.Time{}, nil, time.Time{})
	if err != nil {
		return uuid.Nil, err
	}
	pool.InvalidatedAt = row.PrebuildsInvalidatedAt
	before, err := q.TakePrebuilt(ctx, dbsqlc.TakePrebuiltParams{
		PresetID: row.ID, VersionID: t.ActiveVersionID, CreatedAfter: pool.GoodAfter(s.opts.Now()),
	})
	if database.IsNotFound(err) {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("find prebuilt workspace: %w", err)
	}
	if fits, err := fitsQuota(ctx, q, before.ID, p); err != nil || !fits {
		return uuid.Nil, err // creating it says what is wrong
	}
	w, err := q.ClaimPrebuilt(ctx, dbsqlc.ClaimPrebuiltParams{
		ID: before.ID, OwnerID: p.OwnerID, Name: p.Name, AutostartSchedule: p.AutostartSchedule,
		TtlSeconds: p.TtlSeconds, AutomaticUpdates: p.AutomaticUpdates,
	})
	if err != nil {
		return uuid.Nil, err
	}
	entry := audit.OfWorkspace(before, w)
	entry.Name, entry.Fields = w.Name, map[string]any{"claimed_prebuilt": before.Name}
	if err := s.record(ctx, q, entry, w); err != nil {
		return uuid.Nil, err
	}
	build, err := s.build(ctx, q, w, buildRequest{
		transition: sdk.TransitionStart, version: t.ActiveVersionID, preset: row.ID, given: given, initiator: actor.UserID, reason: sdk.ReasonInitiator,
		claims: true, byHand: consents.ByHand(actor, p.OwnerID),
	})
	if err != nil {
		return uuid.Nil, err
	}
	planned, err := q.SetPrebuiltClaimed(ctx, dbsqlc.SetPrebuiltClaimedParams{WorkspaceID: w.ID, ClaimBuildID: &build})
	if err != nil {
		return uuid.Nil, fmt.Errorf("store claim: %w", err)
	}
	return w.ID, s.giveAgents(ctx, q, w, build, planned)
}

// asPrebuilt reports whether a request's values make a workspace that equals a preset's prebuilt ones, and returns them
// as those spell them: the template must not see another text for the same number.
func (s *Service) asPrebuilt(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template, preset uuid.UUID, req sdk.CreateWorkspaceRequest,
) (same bool, given []sdk.ParameterValue, err error) {
	definitions, err := templates.Definitions(ctx, q, t.ActiveVersionID)
	if err != nil {
		return false, nil, err
	}
	prebuilt, err := s.resolve(ctx, q, dbsqlc.Workspace{}, t.ActiveVersionID, uuid.Nil,
		buildRequest{transition: sdk.TransitionStart, preset: preset})
	if err != nil {
		return false, nil, onlyInternal(err) // there are none; the request's own values may be complete
	}
	wanted, err := s.resolve(ctx, q, dbsqlc.Workspace{}, t.ActiveVersionID, uuid.Nil,
		buildRequest{
			transition: sdk.TransitionStart, preset: req.TemplateVersionPresetID, given: req.RichParameterValues,
		})
	if err != nil {
		return false, nil, onlyInternal(err) // creating it says what is wrong
	}
	return sameValues(definitions, wanted.now, prebuilt.now), spelled(req.RichParameterValues, prebuilt.now), nil
}

// onlyInternal returns an error that is not the requester's.
func onlyInternal(err error) error {
	if fault.CodeOf(err) == fault.Internal {
		return err
	}
	return nil
}

// fitsQuota reports whether the new owner may have what a prebuilt workspace costs.
func fitsQuota(
	ctx context.Context, q *dbsqlc.Queries, prebuilt uuid.UUID, p dbsqlc.InsertWorkspaceParams,
) (bool, error) {
	last, err := q.GetLatestStartCost(ctx, prebuilt)
	if err != nil {
		return false, fmt.Errorf("read cost of prebuilt workspace: %w", err)
	}
	over, err := overQuota(ctx, q, dbsqlc.Workspace{
		ID: prebuilt, OrganizationID: p.OrganizationID, OwnerID: p.OwnerID,
	}, int64(last.DailyCost))
	return over == "", err
}
