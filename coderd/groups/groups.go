package groups

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	maxName   = 255  // bytes
	maxAvatar = 2048 // bytes
	maxPage   = 1000 // members in one answer
	// listMembers is how many members of each group a list of groups contains.
	listMembers = 100
	// maxChange is how many users one request can add or remove.
	maxChange = 1000
)

// Service serves groups. Safe for concurrent use.
type Service struct {
	db    *database.DB
	users Users
}

// Users finds users.
type Users interface {
	// Find returns the user that a reference means: "me", an id or a name.
	Find(ctx context.Context, actor rbac.Actor, reference string) (dbsqlc.User, error)
}

// New returns the service.
func New(db *database.DB, users Users) *Service { return &Service{db, users} }

// Routes registers the groups' routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	read := rbac.Needs(rbac.Read, rbac.Group)
	mux.Handle("GET /api/v2/groups", read, s.list)
	mux.Handle("GET /api/v2/groups/{group}", read, s.get)
	mux.Handle("PATCH /api/v2/groups/{group}", rbac.Needs(rbac.Update, rbac.Group), s.patch,
		audit.On(audit.Write, audit.Group))
	mux.Handle("DELETE /api/v2/groups/{group}", rbac.Needs(rbac.Delete, rbac.Group), s.delete,
		audit.On(audit.Delete, audit.Group))
	mux.Handle("GET /api/v2/groups/{group}/members", read, s.members)
	mux.Handle("GET /api/v2/organizations/{organization}/groups", read, s.list)
	mux.Handle("POST /api/v2/organizations/{organization}/groups", rbac.Needs(rbac.Create, rbac.Group), s.create,
		audit.On(audit.Create, audit.Group), httpapi.Creates("groups/{created}"))
	mux.Handle("GET /api/v2/organizations/{organization}/groups/{groupname}", read, s.getByName)
}

// CheckName returns a fault if a group cannot have the name. Names may come from an identity provider, so that letters
// of all scripts and punctuation are valid.
func CheckName(name string) error {
	invalid := func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.TrimSpace(name) != name ||
		strings.ContainsFunc(name, invalid) {
		return fault.New(fault.Invalid, "The group's name is invalid.").
			WithField("name",
				fmt.Sprintf("must be 1 to %d bytes of printable text, without spaces at its ends", maxName))
	}
	if uuid.Validate(name) == nil || strings.Trim(name, ".") == "" {
		return fault.New(fault.Invalid, "The group's name is invalid.").
			WithField("name", "must not be a UUID or consist of dots")
	}
	return nil
}

// check returns a fault unless the group's fields are valid.
func check(name, displayName, avatar string, quota int) error {
	if err := CheckName(name); err != nil {
		return err
	}
	refused := fault.New(fault.Invalid, "The group is invalid.")
	if len(displayName) > maxName || strings.ContainsFunc(displayName, httpapi.Hidden) ||
		!utf8.ValidString(displayName) {
		refused.WithField("display_name", fmt.Sprintf("must be at most %d bytes, all of them visible", maxName))
	}
	if !validAvatar(avatar) {
		refused.WithField("avatar_url",
			fmt.Sprintf("must be an http or https URL, or a path on this server, of at most %d bytes", maxAvatar))
	}
	if quota < 0 || quota > math.MaxInt32 {
		refused.WithField("quota_allowance", fmt.Sprintf("must be from 0 to %d", math.MaxInt32))
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	return nil
}

func validAvatar(text string) bool {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxAvatar || !utf8.ValidString(text) {
		return false
	}
	return text == "" || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" || u.Scheme == "" &&
		u.Host == "" && strings.HasPrefix(text, "/")
}

// extent returns a query for the groups that the actor may read.
func extent(actor rbac.Actor) dbsqlc.ListGroupRowsParams {
	e := actor.Extent(rbac.Group)
	return dbsqlc.ListGroupRowsParams{ExtentAll: e.All, ExtentOrganizations: e.Organizations}
}

// list returns groups with their first members, at most the given number of each; 0 means all.
func list(
	ctx context.Context, q *dbsqlc.Queries, viewer rbac.Actor, p dbsqlc.ListGroupRowsParams, members int32,
) ([]sdk.Group, error) {
	if p.ExtentOrganizations == nil {
		p.ExtentOrganizations = []uuid.UUID{}
	}
	rows, err := q.ListGroupRows(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.Group.ID
	}
	found, err := q.ListGroupMembers(ctx, dbsqlc.ListGroupMembersParams{Ids: ids, PageLimit: members})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	byGroup := map[uuid.UUID][]sdk.ReducedUser{}
	for _, row := range found {
		byGroup[row.GroupID] = append(byGroup[row.GroupID], reduced(viewer, row.User))
	}
	out := make([]sdk.Group, len(rows))
	for i, row := range rows {
		g := row.Group
		out[i] = sdk.Group{
			ID: g.ID, Name: g.Name, DisplayName: g.DisplayName, OrganizationID: g.OrganizationID,
			OrganizationName:        row.OrganizationName,
			OrganizationDisplayName: row.OrganizationDisplayName, Members: byGroup[g.ID],
			TotalMemberCount: int(row.Total),
			AvatarURL:        g.AvatarUrl, QuotaAllowance: int(g.QuotaAllowance), Source: sdk.GroupSource(g.Source),
		}
	}
	return out, nil
}

// list serves the groups that the actor may see, of the organization in the path or all: GET
// …/groups?organization=&has_member=&q=.
func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	p := extent(actor)
	if r.PathValue("organization") != "" {
		org, err := lookup.Organization(r, s.db.Queries, actor)
		if err != nil {
			return err
		}
		p.OrganizationID = &org.ID
	}
	query := r.URL.Query()
	terms, err := httpapi.ParseSearch(query.Get("q"), "name", "search")
	if err != nil {
		return err
	}
	p.Search = cmp.Or(terms["name"], terms["search"], terms[""])
	if name := query.Get("organization"); name != "" {
		org, err := s.db.GetOrganizationByReference(ctx, name)
		if database.IsNotFound(err) {
			return httpapi.Write(w, http.StatusOK, sdk.List[sdk.Group]{})
		}
		if err != nil {
			return fmt.Errorf("look up organization: %w", err)
		}
		p.OrganizationID = &org.ID
	}
	if name := query.Get("has_member"); name != "" {
		u, err := s.users.Find(ctx, actor, name)
		if fault.CodeOf(err) == fault.NotFound {
			return httpapi.Write(w, http.StatusOK, sdk.List[sdk.Group]{})
		}
		if err != nil {
			return err
		}
		p.MemberID = &u.ID
	}
	groups, err := list(ctx, s.db.Queries, actor, p, listMembers)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, sdk.List[sdk.Group](groups))
}

// group returns the group in the path if the actor may perform the action on it.
func (s *Service) group(r *http.Request, action rbac.Action) (dbsqlc.Group, error) {
	id, err := httpapi.PathUUID(r, "group")
	if err != nil {
		return dbsqlc.Group{}, err
	}
	g, err := s.db.GetGroup(r.Context(), id)
	if err != nil {
		return g, lookup.Fault(err, rbac.Group, "read group")
	}
	return g, httpapi.ActorFrom(r.Context()).May(action, object(g))
}

func object(g dbsqlc.Group) rbac.Object { return rbac.Of(rbac.Group, uuid.Nil).In(g.OrganizationID) }

// write answers with a group and all its members.
func (s *Service) write(w http.ResponseWriter, r *http.Request, status int, id uuid.UUID) error {
	groups, err := list(r.Context(), s.db.Queries, httpapi.ActorFrom(r.Context()),
		dbsqlc.ListGroupRowsParams{Ids: []uuid.UUID{id}, ExtentAll: true}, 0)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		return rbac.NotFound(rbac.Group)
	}
	return httpapi.Write(w, status, groups[0])
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	g, err := s.group(r, rbac.Read)
	if err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, g.ID)
}

func (s *Service) getByName(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.db.Queries, actor)
	if err != nil {
		return err
	}
	g, err := s.db.GetGroupByName(r.Context(), dbsqlc.GetGroupByNameParams{
		OrganizationID: org.ID, Name: database.Text(r.PathValue("groupname")),
	})
	if err != nil {
		return lookup.Fault(err, rbac.Group, "look up group")
	}
	if err := actor.May(rbac.Read, object(g)); err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, g.ID)
}

func (s *Service) members(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	g, err := s.group(r, rbac.Read)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(r, "limit", 0, math.MaxInt32)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, math.MaxInt32)
	if err != nil {
		return err
	}
	if limit == 0 || limit > maxPage {
		limit = maxPage
	}
	rows, err := s.db.ListGroupRows(ctx,
		dbsqlc.ListGroupRowsParams{Ids: []uuid.UUID{g.ID}, ExtentAll: true, ExtentOrganizations: []uuid.UUID{}})
	if err != nil {
		return fmt.Errorf("count members: %w", err)
	}
	if len(rows) == 0 {
		return rbac.NotFound(rbac.Group)
	}
	found, err := s.db.ListGroupMembers(ctx,
		dbsqlc.ListGroupMembersParams{Ids: []uuid.UUID{g.ID}, PageLimit: int32(limit), PageOffset: int32(offset)})
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	out := sdk.GroupMembersResponse{Count: int(rows[0].Total)}
	for _, row := range found {
		out.Users = append(out.Users, reduced(actor, row.User))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	org, err := lookup.Organization(r, s.db.Queries, actor)
	if err != nil {
		return err
	}
	if err := actor.May(rbac.Create, rbac.Of(rbac.Group, uuid.Nil).In(org.ID)); err != nil {
		return err
	}
	var req sdk.CreateGroupRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if err := check(req.Name, req.DisplayName, req.AvatarURL, req.QuotaAllowance); err != nil {
		return err
	}
	id := uuid.New()
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if _, err := q.HoldOrganization(ctx, org.ID); err != nil {
			return lookup.Fault(err, rbac.Organization, "hold organization")
		}
		g, err := q.InsertGroup(ctx, dbsqlc.InsertGroupParams{
			ID: id, OrganizationID: org.ID, Name: req.Name, DisplayName: req.DisplayName, AvatarUrl: req.AvatarURL,
			QuotaAllowance: int32(req.QuotaAllowance),
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfGroup(dbsqlc.Group{}, g))
	})
	if err != nil {
		return taken(err, req.Name, "create group")
	}
	return s.write(w, r, http.StatusCreated, id)
}

func taken(err error, name, doing string) error {
	if database.IsUniqueViolation(err, "groups_name") {
		return fault.New(fault.Conflict, "The organization already has a group named %q.", name).
			WithField("name", "is taken")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (s *Service) patch(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	g, err := s.group(r, rbac.Update)
	if err != nil {
		return err
	}
	var req sdk.PatchGroupRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	add, remove, err := memberChanges(req)
	if err != nil {
		return err
	}
	err = s.db.InTx(ctx,
		func(q *dbsqlc.Queries) error { return update(ctx, q, httpapi.ActorFrom(ctx), g.ID, req, add, remove) })
	if err != nil {
		return taken(err, req.Name, "change group")
	}
	return s.write(w, r, http.StatusOK, g.ID)
}

// memberChanges returns the ids of the users that a request adds and removes.
func memberChanges(req sdk.PatchGroupRequest) (add, remove []uuid.UUID, err error) {
	refused := fault.New(fault.Invalid, "The change of the group is invalid.")
	parse := func(field string, texts []string) []uuid.UUID {
		ids := []uuid.UUID{}
		if len(texts) > maxChange {
			refused.WithField(field, fmt.Sprintf("must name at most %d users", maxChange))
			return ids
		}
		for _, text := range texts {
			id, err := uuid.Parse(text)
			if err != nil {
				refused.WithField(field, fmt.Sprintf("%q must be a user's UUID", shorten(text)))
			}
			ids = append(ids, id)
		}
		return ids
	}
	add, remove = parse("add_users", req.AddUsers), parse("remove_users", req.RemoveUsers)
	for _, id := range add {
		if slices.Contains(remove, id) {
			refused.WithField("remove_users", id.String()+" is also in add_users")
		}
	}
	if len(refused.Fields) > 0 {
		return nil, nil, refused
	}
	return add, remove, nil
}

// update applies a request to a group, and records it.
func update(ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, id uuid.UUID, req sdk.PatchGroupRequest, add, remove []uuid.UUID) error {
	g, err := q.LockGroup(ctx, id)
	if err != nil {
		return lookup.Fault(err, rbac.Group, "lock group")
	}
	p := dbsqlc.UpdateGroupParams{
		ID: g.ID, Name: g.Name, DisplayName: g.DisplayName, AvatarUrl: g.AvatarUrl, QuotaAllowance: g.QuotaAllowance,
	}
	quota := int(g.QuotaAllowance)
	if req.Name != "" {
		p.Name = req.Name
	}
	if req.DisplayName != nil {
		p.DisplayName = *req.DisplayName
	}
	if req.AvatarURL != nil {
		p.AvatarUrl = *req.AvatarURL
	}
	if req.QuotaAllowance != nil {
		quota = *req.QuotaAllowance
	}
	if everyone := g.ID == g.OrganizationID; everyone &&
		(len(add)+len(remove) > 0 || p.Name != g.Name || p.DisplayName != g.DisplayName || p.AvatarUrl != g.AvatarUrl) {
		return fault.New(fault.Invalid, "The group %s always contains all members of the organization.", sdk.Everyone).
			WithDetail("Only its quota can be changed.")
	}
	if p.Name != g.Name { // an older name may break a newer rule
		if err := CheckName(p.Name); err != nil {
			return err
		}
	}
	if err := check("valid", p.DisplayName, p.AvatarUrl, quota); err != nil {
		return err
	}
	p.QuotaAllowance = int32(quota)
	after, err := q.UpdateGroup(ctx, p)
	if err != nil {
		return err
	}
	if len(add) > 0 {
		if err := lookup.MayFill(ctx, q, actor, g.OrganizationID, []uuid.UUID{g.ID}); err != nil {
			return err
		}
	}
	if err := changeMembers(ctx, q, g, add, remove); err != nil {
		return err
	}
	entry := audit.OfGroup(g, after)
	entry.Diff.Field("members_add", "", listed(add)).Field("members_remove", "", listed(remove))
	return audit.Record(ctx, q, entry)
}

// listed returns ids as the audit log shows them.
func listed(ids []uuid.UUID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return strings.Join(texts, " ")
}

// changeMembers removes and adds members. Only members of the group's organization can be added.
func changeMembers(ctx context.Context, q *dbsqlc.Queries, g dbsqlc.Group, add, remove []uuid.UUID) error {
	if len(remove) > 0 {
		if err := q.RemoveGroupMembers(ctx, dbsqlc.RemoveGroupMembersParams{GroupID: g.ID, Users: remove}); err != nil {
			return fmt.Errorf("remove members: %w", err)
		}
	}
	if len(add) == 0 {
		return nil
	}
	members, err := q.HoldOrganizationMembers(ctx, dbsqlc.HoldOrganizationMembersParams{
		OrganizationID: g.OrganizationID, Users: add,
	})
	if err != nil {
		return fmt.Errorf("look up members: %w", err)
	}
	refused := fault.New(fault.Invalid, "Only members of the organization can be in its groups.")
	for _, id := range add {
		if !slices.Contains(members, id) {
			refused.WithField("add_users", id.String()+" is not a member of the organization")
		}
	}
	if len(refused.Fields) > 0 {
		return refused
	}
	return q.AddGroupMembers(ctx, dbsqlc.AddGroupMembersParams{GroupID: g.ID, Users: add})
}

func (s *Service) delete(w http.ResponseWriter, r *http.Request) error {
	g, err := s.group(r, rbac.Delete)
	if err != nil {
		return err
	}
	if g.ID == g.OrganizationID {
		return fault.New(fault.Invalid, "The group %s cannot be deleted.", sdk.Everyone).
			WithDetail("It always contains all members of the organization.")
	}
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		g, err := q.LockGroup(r.Context(), g.ID)
		if err != nil {
			return lookup.Fault(err, rbac.Group, "lock group")
		}
		if err := q.DeleteGroup(r.Context(), g.ID); err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.OfGroup(g, dbsqlc.Group{}))
	})
	if err != nil {
		return fmt.Errorf("delete group: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, sdk.Response{Message: "The group is deleted."})
}
