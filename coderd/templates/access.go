package templates

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) getACL(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Read)
	if err != nil {
		return err
	}
	shared, err := groups.Resolve(r.Context(), s.opts.DB.Queries, httpapi.ActorFrom(r.Context()), t.OrganizationID,
		t.Sharing)
	if err != nil {
		return err
	}
	out := sdk.TemplateACL{}
	for _, x := range shared.Users {
		u := sdk.User{
			ID: x.User.ID, Username: x.User.Username, Name: x.User.Name, Email: x.User.Email,
			CreatedAt: x.User.CreatedAt, UpdatedAt: x.User.UpdatedAt,
			LastSeenAt: x.User.LastSeenAt, Status: x.User.Status, LoginType: x.User.LoginType,
			OrganizationIDs: []uuid.UUID{t.OrganizationID},
		}
		out.Users = append(out.Users, sdk.TemplateUser{User: u, Role: string(x.Level)})
	}
	for _, g := range shared.Groups {
		out.Groups = append(out.Groups, sdk.TemplateGroup{Group: g.Group, Role: string(g.Level)})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// updateACL changes with whom the template is shared. Users and groups that the request does not name keep their
// access.
func (s *Service) updateACL(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	t, err := s.template(r, rbac.Share)
	if err != nil {
		return err
	}
	var req sdk.UpdateTemplateACLRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		t, err := q.LockTemplate(ctx, t.ID)
		if database.IsNotFound(err) {
			return rbac.NotFound(rbac.Template)
		}
		if err != nil {
			return fmt.Errorf("lock template: %w", err)
		}
		// The actor may have lost the right since: it may come from the sharing that changes here.
		if err := actor.May(rbac.Share, object(t)); err != nil {
			return err
		}
		sharing, err := groups.Share(ctx, q, t.OrganizationID, t.Sharing, groups.Change{
			Users: req.UserPerms, Groups: req.GroupPerms, UsersField: "user_perms", GroupsField: "group_perms",
		})
		if err != nil {
			return err
		}
		after, err := storeSharing(ctx, q, t, sharing)
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfTemplate(t, after))
	})
	if err != nil {
		return lookup.Fault(err, rbac.Template, "share template")
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The access to the template has changed."})
}

// limitSharing sets the highest level at which ports and apps of the template's workspaces may be shared, and ends the
// sharing of ports above it. No level, or none that is new, changes nothing.
func limitSharing(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template, level *sdk.AppShare,
) (dbsqlc.Template, error) {
	if level == nil || *level == "" || string(*level) == t.MaxPortShareLevel {
		return t, nil
	}
	t, err := q.UpdateTemplateCeiling(ctx, dbsqlc.UpdateTemplateCeilingParams{
		ID: t.ID, MaxPortShareLevel: string(*level),
	})
	if err != nil {
		return t, fmt.Errorf("store highest level of sharing: %w", err)
	}
	above := []string{}
	for _, l := range sdk.PortShareLevels {
		if l.Exceeds(*level) {
			above = append(above, string(l))
		}
	}
	if err := q.DeletePortSharesAbove(ctx, dbsqlc.DeletePortSharesAboveParams{
		TemplateID: t.ID, Levels: above,
	}); err != nil {
		return t, fmt.Errorf("end sharing of ports: %w", err)
	}
	return t, nil
}

// declaredSharing returns the limit of a new template whose author names none: owners share nothing further, unless an
// app of the imported version declares a wider level.
func declaredSharing(ctx context.Context, q *dbsqlc.Queries, job uuid.UUID) (*sdk.AppShare, error) {
	declared, err := q.ListSharingOfImport(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("list sharing of apps: %w", err)
	}
	widest := sdk.ShareOwner
	for _, level := range declared {
		if sdk.AppShare(level).Exceeds(widest) {
			widest = sdk.AppShare(level)
		}
	}
	return &widest, nil
}

// makePrivate ends the sharing of a template with the group Everyone. The actor must have the right to share it.
func makePrivate(ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template) (dbsqlc.Template, error) {
	if _, open := t.Sharing[t.OrganizationID]; !open {
		return t, nil
	}
	if err := httpapi.ActorFrom(ctx).May(rbac.Share, object(t)); err != nil {
		return t, err
	}
	sharing := maps.Clone(t.Sharing)
	delete(sharing, t.OrganizationID)
	t, err := storeSharing(ctx, q, t, sharing)
	if err != nil {
		return t, fmt.Errorf("make template private: %w", err)
	}
	return t, nil
}

// storeSharing stores with whom a template is shared, and announces to the pages of those who lose access that it has
// changed.
func storeSharing(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template, sharing rbac.Sharing,
) (dbsqlc.Template, error) {
	former := slices.Collect(maps.Keys(t.Sharing))
	t, err := q.UpdateTemplateSharing(ctx, dbsqlc.UpdateTemplateSharingParams{ID: t.ID, Sharing: sharing})
	if err != nil {
		return t, err
	}
	if err := q.AnnounceUnsharedTemplate(ctx, dbsqlc.AnnounceUnsharedTemplateParams{
		TemplateID: t.ID, Former: former,
	}); err != nil {
		return t, fmt.Errorf("announce withdrawn access: %w", err)
	}
	return t, nil
}

func (s *Service) listAvailable(w http.ResponseWriter, r *http.Request) error {
	t, err := s.template(r, rbac.Share)
	if err != nil {
		return err
	}
	terms, err := httpapi.ParseSearch(r.URL.Query().Get("q"), "name", "search")
	if err != nil {
		return err
	}
	out, err := groups.Available(r.Context(), s.opts.DB.Queries, httpapi.ActorFrom(r.Context()), t.OrganizationID,
		cmp.Or(terms["name"], terms["search"], terms[""]))
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}
