package workspaces

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) getACL(w http.ResponseWriter, r *http.Request) error {
	ws, err := s.workspace(r, rbac.Withdraw)
	if err != nil {
		return err
	}
	shared, err := groups.Resolve(r.Context(), s.opts.DB.Queries, httpapi.ActorFrom(r.Context()), ws.OrganizationID,
		ws.Sharing)
	if err != nil {
		return err
	}
	out := sdk.WorkspaceACL{}
	for _, u := range shared.Users {
		out.Users = append(out.Users, sdk.WorkspaceUser{MinimalUser: u.User.MinimalUser, Role: string(u.Level)})
	}
	for _, g := range shared.Groups {
		out.Groups = append(out.Groups, sdk.WorkspaceGroup{Group: g.Group, Role: string(g.Level)})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// patchACL changes with whom the workspace is shared. Users and groups that the request does not name keep their
// access.
func (s *Service) patchACL(w http.ResponseWriter, r *http.Request) error {
	var req sdk.UpdateWorkspaceACLRequest
	return s.share(w, r, &req, func(ctx context.Context, q *dbsqlc.Queries, ws dbsqlc.Workspace) (rbac.Sharing, error) {
		// The owner's own rights do not come from sharing.
		if req.UserRoles[ws.OwnerID.String()] != "" {
			return nil, fault.New(fault.Invalid, "The workspace cannot be shared with its owner.").
				WithField("user_roles", ws.OwnerID.String()+" owns the workspace")
		}
		return groups.Share(ctx, q, ws.OrganizationID, ws.Sharing, groups.Change{
			Users: req.UserRoles, Groups: req.GroupRoles, UsersField: "user_roles", GroupsField: "group_roles",
		})
	})
}

func (s *Service) deleteACL(w http.ResponseWriter, r *http.Request) error {
	return s.share(w, r, nil, func(context.Context, *dbsqlc.Queries, dbsqlc.Workspace) (rbac.Sharing, error) {
		return rbac.Sharing{}, nil
	})
}

// share reads a request into req unless it is nil, and stores the sharing that change returns. Those who may only
// withdraw sharing can make it no wider. Once the transaction commits, every server is notified of withdrawn access and
// ends what users opened with it.
func (s *Service) share(w http.ResponseWriter, r *http.Request, req any, change func(context.Context, *dbsqlc.Queries, dbsqlc.Workspace) (rbac.Sharing, error)) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	ws, err := s.workspace(r, rbac.Withdraw)
	if err != nil {
		return err
	}
	if req != nil {
		if err := httpapi.Read(w, r, req); err != nil {
			return err
		}
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		off, err := q.HoldOrganizationSharing(ctx, ws.OrganizationID)
		if err != nil {
			return fmt.Errorf("read organization: %w", err)
		}
		ws, err := q.LockWorkspace(ctx, ws.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Workspace, "lock workspace")
		}
		// The actor may have lost the right since: it came from the sharing that changes here.
		if err := actor.May(rbac.Withdraw, object(ws)); err != nil {
			return err
		}
		sharing, err := change(ctx, q, ws)
		if err != nil {
			return err
		}
		if !sharing.Within(ws.Sharing) {
			if err := actor.May(rbac.Share, object(ws)); err != nil {
				return err
			}
			if off {
				return lookup.SharingOff()
			}
		}
		after, err := q.UpdateWorkspaceSharing(ctx, dbsqlc.UpdateWorkspaceSharingParams{ID: ws.ID, Sharing: sharing})
		if err != nil {
			return err
		}
		former := slices.Collect(maps.Keys(ws.Sharing))
		if err := q.AnnounceUnsharedWorkspace(ctx, dbsqlc.AnnounceUnsharedWorkspaceParams{
			WorkspaceID: ws.ID, Former: former,
		}); err != nil {
			return fmt.Errorf("announce withdrawn access: %w", err)
		}
		if err := s.record(ctx, q, audit.OfWorkspace(ws, after), after); err != nil {
			return err
		}
		if err := s.notifyShared(ctx, q, ws, after); err != nil {
			return err
		}
		return q.NotifyWorkspace(ctx, ws.ID)
	})
	if err != nil {
		return fmt.Errorf("share workspace: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// filterShared restricts a query to workspaces that are shared with a user (by id, name or "me"), directly or through a
// group, and to those that are shared with a group (by id, name or organization/name).
func (s *Service) filterShared(
	ctx context.Context, actor rbac.Actor, p *dbsqlc.ListWorkspaceRowsParams, user, group string,
) error {
	if user == "" && group == "" {
		return nil
	}
	if user != "" && group != "" {
		return fault.New(fault.Invalid, "The search is invalid.").
			WithField("q", "shared_with_user and shared_with_group cannot be combined")
	}
	p.SharedWith = []string{}
	if group != "" {
		organization, name, ok := strings.Cut(group, "/")
		if !ok {
			organization, name = sdk.DefaultOrganization, group
		}
		if id, err := uuid.Parse(group); err == nil {
			p.SharedWith = append(p.SharedWith, id.String())
			return nil
		}
		org, err := s.opts.DB.GetOrganizationByReference(ctx, organization)
		if database.IsNotFound(err) || err == nil && !actor.Sees(rbac.Group, org.ID) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look up organization: %w", err)
		}
		g, err := s.opts.DB.GetGroupByName(ctx, dbsqlc.GetGroupByNameParams{OrganizationID: org.ID, Name: name})
		if err == nil {
			p.SharedWith = append(p.SharedWith, g.ID.String())
		} else if !database.IsNotFound(err) {
			return fmt.Errorf("look up group: %w", err)
		}
		return nil
	}
	u, err := s.opts.Users.Find(ctx, actor, user)
	if fault.CodeOf(err) == fault.NotFound {
		return nil // as for a user with whom nothing is shared
	}
	if err != nil {
		return err
	}
	p.NotOwnerID = &u.ID
	ids, err := s.opts.DB.ListUserPrincipals(ctx, u.ID)
	if err != nil {
		return fmt.Errorf("list user's groups: %w", err)
	}
	for _, id := range ids {
		p.SharedWith = append(p.SharedWith, id.String())
	}
	return nil
}
