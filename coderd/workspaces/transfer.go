package workspaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// handover is a transfer that waits until its workspace is stopped. It is stored with the job of the stop, and carried
// out in the transaction that ends this job, by whichever server receives the result.
type handover struct {
	Owner     uuid.UUID `json:"owner"`
	Name      string    `json:"name,omitempty"` // "": it keeps its name
	Initiator uuid.UUID `json:"initiator"`

	asked string // how the request names the new owner; "" when the stop has ended
}

// notMember is the fault for a new owner who cannot own workspaces of the organization. It does not reveal whether the
// user exists.
func notMember(name string) error {
	return fault.New(fault.Invalid, "%s is not a member of the workspace's organization.", name).
		WithField("owner", "is not a member of the organization").
		WithDetail("An administrator of the organization can add members: coder organizations members add USER")
}

// transfer gives the workspace in the path to another user: at once if it is stopped, else when the stop that it queues
// has succeeded.
func (s *Service) transfer(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	ws, err := s.workspace(r, rbac.Transfer)
	if err != nil {
		return err
	}
	var req sdk.TransferWorkspaceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if req.Owner == "" {
		return fault.New(fault.Invalid, "A transfer needs a new owner.").WithField("owner", "is required")
	}
	if req.Name != "" {
		if err := CheckName(req.Name); err != nil {
			return err
		}
	}
	to, err := s.opts.Users.Find(ctx, actor, req.Owner)
	if fault.CodeOf(err) == fault.NotFound {
		return notMember(req.Owner)
	}
	if err != nil {
		return err
	}
	if err := s.opts.ExternalAuth.Freshen(ctx, ws.OwnerID); err != nil { // the stop is a build of the present owner
		return err
	}
	h := handover{Owner: to.ID, Name: req.Name, Initiator: actor.UserID, asked: req.Owner}
	status := http.StatusOK
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		locked, err := q.LockWorkspace(ctx, ws.ID)
		if err != nil {
			return err
		}
		latest, err := s.transferable(ctx, q, locked, actor, h)
		if err != nil {
			return err
		}
		if stopped(latest) {
			return s.handOver(ctx, q, locked, h, actor)
		}
		status = http.StatusAccepted
		_, err = s.build(ctx, q, locked, buildRequest{
			transition: sdk.TransitionStop, initiator: actor.UserID, reason: sdk.ReasonInitiator, priority: priorityPerson, handover: &h,
		})
		return err
	})
	if database.IsUniqueViolation(err, "workspaces_name") {
		return nameTaken(to.Username, cmp.Or(req.Name, ws.Name))
	}
	if err != nil {
		return fmt.Errorf("transfer workspace: %w", err)
	}
	made, err := s.one(ctx, actor, ws.ID)
	if err != nil {
		return err
	}
	return httpapi.Write(w, status, made)
}

func nameTaken(owner, name string) error {
	return fault.New(fault.Conflict, "%s already has a workspace named %q.", owner, name).WithField("name", "is taken").
		WithDetail("Choose another name for the transferred workspace: --name")
}

// transferable returns the latest build of a locked workspace, or a fault unless the actor may transfer it and the new
// owner can have it.
func (s *Service) transferable(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, actor rbac.Actor, h handover,
) (latest dbsqlc.GetLatestBuildRow, err error) {
	if err := actor.May(rbac.Transfer, object(w)); err != nil {
		return latest, err
	}
	if w.DeletedAt != nil {
		return latest, fault.New(fault.Conflict, "The workspace %q is deleted.", w.Name)
	}
	if latest, err = q.GetLatestBuild(ctx, w.ID); err != nil {
		return latest, fmt.Errorf("read latest build: %w", err)
	}
	if !sdk.JobStatus(latest.JobStatus).Ended() {
		return latest, fault.New(fault.Conflict, "Build %d of the workspace %q is active.", latest.BuildNumber, w.Name).
			WithDetail("Wait until it has finished, or cancel it.")
	}
	if _, err := q.HoldUser(ctx, h.Owner); err != nil {
		return latest, lookup.Fault(err, rbac.User, "hold new owner")
	}
	u, err := q.GetUser(ctx, h.Owner)
	if err != nil {
		return latest, lookup.Fault(err, rbac.User, "read new owner")
	}
	_, err = q.HoldOrganizationMember(ctx, dbsqlc.HoldOrganizationMemberParams{
		OrganizationID: w.OrganizationID, UserID: u.ID,
	})
	switch {
	case database.IsNotFound(err):
		return latest, notMember(cmp.Or(h.asked, u.Username)) // the same as for a user who does not exist
	case err != nil:
		return latest, fmt.Errorf("hold member: %w", err)
	case u.ID == w.OwnerID:
		return latest, fault.New(fault.Conflict, "%s already owns the workspace %q.", u.Username, w.Name).
			WithField("owner", "owns the workspace")
	case u.Status == string(sdk.UserSuspended):
		return latest, fault.New(fault.Conflict, "%s is suspended and cannot have new workspaces.", u.Username).
			WithField("owner", "is suspended")
	}
	to, err := s.opts.Users.Actor(ctx, u.ID)
	if err != nil {
		return latest, fmt.Errorf("read rights of new owner: %w", err)
	}
	t, err := q.HoldTemplate(ctx, w.TemplateID)
	if err != nil {
		return latest, fmt.Errorf("read template: %w", err)
	}
	if to.May(rbac.Use, templates.Object(t)) != nil {
		return latest, fault.New(fault.Conflict, "%s does not have access to the template %q.", u.Username, t.Name).
			WithField("owner", "cannot use the workspace's template").
			WithDetail("Share the template with the user first.")
	}
	name := cmp.Or(h.Name, w.Name)
	_, err = q.GetWorkspaceByOwnerAndName(ctx, dbsqlc.GetWorkspaceByOwnerAndNameParams{OwnerID: u.ID, Name: name})
	if err == nil {
		return latest, nameTaken(u.Username, name)
	}
	if !database.IsNotFound(err) {
		return latest, fmt.Errorf("look up name: %w", err)
	}
	if stopped(latest) { // what a running workspace costs when it is stopped is not known yet
		over, err := overQuota(ctx, q, dbsqlc.Workspace{
			ID: w.ID, OrganizationID: w.OrganizationID, OwnerID: u.ID,
		}, int64(latest.DailyCost))
		if err != nil {
			return latest, err
		}
		if over != "" {
			return latest, fault.New(fault.Conflict, "%s", over).
				WithDetail("Delete another workspace of the new owner, or ask an administrator for a higher quota.")
		}
	}
	return latest, nil
}

// handOver gives a stopped workspace to its new owner, and takes from the former one what they have of it: sessions,
// tokens, agents, shares, and their values of masked parameters. Terraform's resources, and the files in them, stay.
func (s *Service) handOver(
	ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, h handover, by rbac.Actor,
) error {
	if err := agents.Revoke(ctx, q, w.ID, nil); err != nil {
		return err
	}
	if err := q.DeleteWorkspaceKeys(ctx, &w.ID); err != nil {
		return fmt.Errorf("delete session token: %w", err)
	}
	if err := q.DeletePortShares(ctx, w.ID); err != nil {
		return fmt.Errorf("end sharing of ports: %w", err)
	}
	if err := q.ForgetMaskedParameters(ctx, w.ID); err != nil {
		return fmt.Errorf("forget masked parameters: %w", err)
	}
	after, err := q.TransferWorkspace(ctx, dbsqlc.TransferWorkspaceParams{
		ID: w.ID, OwnerID: h.Owner, Name: cmp.Or(h.Name, w.Name),
	})
	if err != nil {
		return fmt.Errorf("change owner: %w", err)
	}
	if err := q.DeleteFavorites(ctx, w.ID); err != nil {
		return fmt.Errorf("delete favorites: %w", err)
	}
	if err := q.AnnounceUnsharedWorkspace(ctx, dbsqlc.AnnounceUnsharedWorkspaceParams{
		WorkspaceID: w.ID, Former: slices.Collect(maps.Keys(w.Sharing)),
	}); err != nil {
		return fmt.Errorf("announce withdrawn access: %w", err)
	}
	if err := q.AnnounceFormerOwner(ctx, dbsqlc.AnnounceFormerOwnerParams{
		WorkspaceID: w.ID, Former: w.OwnerID,
	}); err != nil {
		return fmt.Errorf("announce transfer: %w", err)
	}
	names := map[uuid.UUID]string{}
	for _, id := range []uuid.UUID{w.OwnerID, after.OwnerID} {
		if names[id], err = q.GetUsername(ctx, id); err != nil {
			return fmt.Errorf("read owner's name: %w", err)
		}
	}
	entry := audit.OfWorkspace(w, after)
	entry.Action, entry.User = audit.Transfer, &audit.Account{ID: by.UserID, Name: by.Username}
	entry.Fields = map[string]any{"former_owner": names[w.OwnerID], "new_owner": names[after.OwnerID]}
	if err := recordOwned(ctx, q, entry, after, names[after.OwnerID]); err != nil {
		return err
	}
	for template, to := range map[*notifications.Template]uuid.UUID{
		&notifications.WorkspaceGivenAway: w.OwnerID, &notifications.WorkspaceReceived: after.OwnerID,
	} {
		if err := s.opts.Notifications.Record(ctx, q, notifications.Event{
			Template: *template, To: []uuid.UUID{to}, Except: []uuid.UUID{by.UserID},
			Targets: []uuid.UUID{w.ID, w.TemplateID},
			Labels: map[string]string{
				"workspace": after.Name, "former_name": w.Name, "owner": names[after.OwnerID], "former_owner": names[w.OwnerID], "initiator": by.Username,
			},
		}); err != nil {
			return err
		}
	}
	return q.NotifyWorkspace(ctx, w.ID)
}

// handOverStopped is the second half of the transfer of a workspace that had to be stopped. What was true when it was
// requested may have changed: a transfer that is refused now leaves the workspace stopped, with its owner.
func (s *Service) handOverStopped(ctx context.Context, q *dbsqlc.Queries, w dbsqlc.Workspace, h handover) error {
	by, err := s.opts.Users.Actor(ctx, h.Initiator)
	if err == nil {
		_, err = s.transferable(ctx, q, w, by, h)
	}
	if refused, ok := errors.AsType[*fault.Error](err); ok && refused.Code != fault.Internal {
		s.log.WarnContext(ctx, "cannot transfer workspace", "workspace", w.ID, "err", err)
		return s.record(ctx, q, audit.Entry{
			Action: audit.Transfer, Kind: audit.Workspace, ID: w.ID, Status: http.StatusConflict,
			Fields: map[string]any{"initiator_id": h.Initiator, "reason": refused.Message},
		}, w)
	}
	if err != nil {
		return fmt.Errorf("transfer workspace: %w", err)
	}
	return s.handOver(ctx, q, w, h, by)
}
