package templates

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// notifyDeleted notifies the other administrators of templates.
func (s *Service) notifyDeleted(ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template) error {
	by, name := notifications.Initiator(ctx)
	return s.opts.Notifications.Record(ctx, q, notifications.Event{
		Template: notifications.TemplateDeleted, Targets: []uuid.UUID{t.ID, t.OrganizationID}, Except: []uuid.UUID{by},
		Roles:             []string{rbac.RoleOwner, rbac.RoleTemplateAdmin},
		Organization:      t.OrganizationID,
		OrganizationRoles: []string{rbac.RoleOrganizationAdmin, rbac.RoleOrganizationTemplateAdmin},
		Labels:            map[string]string{"template": t.Name, "initiator": name},
	})
}

// notifyDeprecated notifies the users who have workspaces of a template that was deprecated.
func (s *Service) notifyDeprecated(ctx context.Context, q *dbsqlc.Queries, before, after dbsqlc.Template) error {
	if before.Deprecated != "" || after.Deprecated == "" {
		return nil
	}
	owners, err := q.ListTemplateWorkspaceOwners(ctx, after.ID)
	if err != nil {
		return fmt.Errorf("list owners of workspaces: %w", err)
	}
	by, _ := notifications.Initiator(ctx)
	return s.opts.Notifications.Record(ctx, q, notifications.Event{
		Template: notifications.TemplateDeprecated, To: owners, Except: []uuid.UUID{by},
		Targets: []uuid.UUID{after.ID, after.OrganizationID},
		Labels:  map[string]string{"template": after.Name, "message": after.Deprecated},
	})
}
