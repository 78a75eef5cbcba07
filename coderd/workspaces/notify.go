package workspaces

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// automatic are the reasons of builds that policy makes.
var automatic = []sdk.BuildReason{sdk.ReasonAutostart, sdk.ReasonAutostop, sdk.ReasonDormancy, sdk.ReasonAutoDelete}

// notifyResult notifies of a build's end those who did not wait for it: the owner of automatic builds and of deletions
// by others, and the administrators of a template whose build failed or, if they asked for it, whose workspace was
// updated. cause is a sentence on the failure; it may be empty.
func (s *Service) notifyResult(
	ctx context.Context, q *dbsqlc.Queries, b dbsqlc.GetBuildByJobRow, w dbsqlc.Workspace,
	canceled, succeeded bool, cause string,
) error {
	if unclaimed(w) {
		return nil // it has no user, and a template's page shows failures
	}
	auto := slices.Contains(automatic, sdk.BuildReason(b.Reason))
	deleted := succeeded && sdk.Transition(b.Transition) == sdk.TransitionDelete && (auto || b.InitiatorID != w.OwnerID)
	started := succeeded && sdk.Transition(b.Transition) == sdk.TransitionStart
	if canceled || succeeded && !deleted && !started {
		return nil
	}
	news, err := q.GetBuildNews(ctx, b.ID)
	if err != nil {
		return fmt.Errorf("read build: %w", err)
	}
	e := notifications.Event{
		Targets: []uuid.UUID{w.ID, w.TemplateID, w.OrganizationID},
		Labels: map[string]string{
			"workspace": w.Name, "owner": news.OwnerName, "template": news.TemplateName, "version": news.VersionName, "transition": b.Transition,
			"initiator": news.InitiatorName, "build": strconv.Itoa(int(news.BuildNumber)), "reason": news.Explanation, "cause": cause,
		},
	}
	switch {
	case deleted:
		e.Template, e.To = notifications.WorkspaceDeleted, []uuid.UUID{w.OwnerID}
		if !auto {
			e.Labels["reason"] = news.InitiatorName + " deleted it"
		}
	case started:
		if !news.Updated {
			return nil
		}
		if auto {
			e.Template, e.To = notifications.WorkspaceAutoUpdated, []uuid.UUID{w.OwnerID}
		} else {
			e.Template, e.Except = notifications.WorkspaceManuallyUpdated, []uuid.UUID{b.InitiatorID}
			addressTemplateAdmins(&e, w.OrganizationID)
		}
	case auto:
		e.Template, e.To, e.Daily = notifications.WorkspaceAutobuildFailed, []uuid.UUID{w.OwnerID}, w.ID.String()+" "+b.Transition
	default:
		e.Template, e.Daily, e.Except = notifications.WorkspaceManualBuildFailed, w.ID.String()+" "+b.Transition, []uuid.UUID{b.InitiatorID}
		addressTemplateAdmins(&e, w.OrganizationID)
	}
	return s.opts.Notifications.Record(ctx, q, e)
}

// addressTemplateAdmins addresses an event to the template admins of the deployment and of an organization.
func addressTemplateAdmins(e *notifications.Event, organization uuid.UUID) {
	e.Roles = []string{rbac.RoleTemplateAdmin}
	e.Organization, e.OrganizationRoles = organization, []string{rbac.RoleOrganizationTemplateAdmin}
}

// notifyCreated notifies the template admins who asked for it of a workspace that a user has created or claimed.
func (s *Service) notifyCreated(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID) error {
	news, err := q.GetWorkspaceNews(ctx, id)
	if err != nil {
		return fmt.Errorf("read workspace: %w", err)
	}
	by, name := notifications.Initiator(ctx)
	e := notifications.Event{
		Template: notifications.WorkspaceCreated, Except: []uuid.UUID{by},
		Targets: []uuid.UUID{id, news.TemplateID, news.OrganizationID},
		Labels: map[string]string{
			"workspace": news.Name, "owner": news.OwnerName, "initiator": name, "template": news.TemplateName,
			"version": news.VersionName,
		},
	}
	addressTemplateAdmins(&e, news.OrganizationID)
	return s.opts.Notifications.Record(ctx, q, e)
}

// notifyShared notifies the users with whom a workspace was newly shared. Members of groups are not notified.
func (s *Service) notifyShared(ctx context.Context, q *dbsqlc.Queries, before, after dbsqlc.Workspace) error {
	var added []uuid.UUID
	for id := range maps.Keys(after.Sharing) {
		if _, had := before.Sharing[id]; !had {
			added = append(added, id) // ids of groups are no users' ids
		}
	}
	if len(added) == 0 {
		return nil
	}
	owner, err := q.GetUsername(ctx, after.OwnerID)
	if err != nil {
		return fmt.Errorf("read owner's name: %w", err)
	}
	by, name := notifications.Initiator(ctx)
	return s.opts.Notifications.Record(ctx, q, notifications.Event{
		Template: notifications.WorkspaceShared, To: added, Except: []uuid.UUID{by},
		Targets: []uuid.UUID{after.ID, after.TemplateID},
		Labels:  map[string]string{"workspace": after.Name, "owner": owner, "initiator": name},
	})
}
