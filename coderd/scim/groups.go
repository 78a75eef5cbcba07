package scim

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func (s *Service) showGroup(g dbsqlc.ListScimGroupsRow, members []object) object {
	out := object{
		"schemas": []string{schemaGroup}, "id": g.Group.ID.String(), "displayName": g.Group.DisplayName,
		"meta": object{
			"resourceType": "Group", "created": g.Group.CreatedAt.Format(time.RFC3339), "lastModified": g.Group.UpdatedAt.Format(time.RFC3339),
			"location": s.location("Groups", g.Group.ID.String()),
		},
	}
	if g.ExternalID != "" {
		out["externalId"] = g.ExternalID
	}
	if members != nil {
		out["members"] = members
	}
	return out
}

// groupFilter selects groups by the attributes of a filter.
func groupFilter(text string) (p dbsqlc.ListScimGroupsParams, err error) {
	terms, err := parseFilter(text)
	for _, t := range terms {
		switch t.attribute {
		case "id":
			p.ID = &t.value
		case "displayname":
			p.DisplayName = &t.value
		case "externalid":
			p.ExternalID = &t.value
		case "meta.resourcetype", "schemas":
		default:
			return p, invalid("invalidFilter", "Groups cannot be filtered by "+t.attribute+".")
		}
	}
	return p, err
}

// withMembers reports whether a request asks for the members of groups.
func withMembers(values url.Values) bool {
	names := strings.Split(strings.ToLower(values.Get("excludedAttributes")), ",")
	return !slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == "members" })
}

func (s *Service) listGroups(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	p, err := groupFilter(values.Get("filter"))
	if err != nil {
		return err
	}
	part, err := pageOf(values)
	if err != nil {
		return err
	}
	total, err := s.opts.DB.CountScimGroups(r.Context(), dbsqlc.CountScimGroupsParams{
		ID: p.ID, DisplayName: p.DisplayName, ExternalID: p.ExternalID,
	})
	if err != nil {
		return fmt.Errorf("count groups: %w", err)
	}
	p.PageLimit, p.PageOffset = part.limit(), part.offset()
	out, err := s.groups(r.Context(), p, withMembers(values))
	if err != nil {
		return err
	}
	return list(w, part, total, out)
}

// groups returns groups as the provider sees them.
func (s *Service) groups(ctx context.Context, p dbsqlc.ListScimGroupsParams, withMembers bool) ([]object, error) {
	rows, err := s.opts.DB.ListScimGroups(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	members := map[uuid.UUID][]object{}
	if withMembers {
		for _, row := range rows {
			members[row.Group.ID] = []object{}
		}
		ids := []uuid.UUID{}
		for id := range members {
			ids = append(ids, id)
		}
		found, err := s.opts.DB.ListScimMembers(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("list members: %w", err)
		}
		for _, m := range found {
			members[m.GroupID] = append(members[m.GroupID], object{
				"value": m.UserID.String(), "display": m.UserName, "$ref": s.location("Users", m.UserID.String()),
			})
		}
	}
	out := []object{}
	for _, row := range rows {
		out = append(out, s.showGroup(row, members[row.Group.ID]))
	}
	return out, nil
}

func (s *Service) answerGroup(w http.ResponseWriter, r *http.Request, status int, id uuid.UUID) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	text := id.String()
	found, err := s.groups(r.Context(), dbsqlc.ListScimGroupsParams{ID: &text, PageLimit: 1}, withMembers(values))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return notFound("group", text)
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", s.location("Groups", text))
	}
	return write(w, status, found[0])
}

func (s *Service) getGroup(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "group")
	if err != nil {
		return err
	}
	return s.answerGroup(w, r, http.StatusOK, id)
}

func (s *Service) createGroup(w http.ResponseWriter, r *http.Request) error {
	data, err := read(w, r)
	if err != nil {
		return err
	}
	c, err := wholeGroup(data)
	if err != nil {
		return err
	}
	name, err := groupName(*c.displayName)
	if err == nil {
		err = checkExternalID(c.externalID)
	}
	if err != nil {
		return err
	}
	ctx, id := r.Context(), uuid.New()
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		org, err := q.GetDefaultOrganization(ctx)
		if err != nil {
			return fmt.Errorf("read organization: %w", err)
		}
		g, err := q.InsertScimGroup(ctx, dbsqlc.InsertScimGroupParams{ID: id, OrganizationID: org.ID, Name: name})
		if err != nil {
			return groupTaken(err, name)
		}
		if err := q.InsertScimGroupLink(ctx, dbsqlc.InsertScimGroupLinkParams{
			GroupID: id, ExternalID: value(c.externalID),
		}); err != nil {
			return fmt.Errorf("store group: %w", err)
		}
		if err := changeMembers(ctx, q, id, c.members); err != nil {
			return err
		}
		return recordGroup(ctx, q, dbsqlc.Group{}, g, c)
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "group provisioned", "group", id)
	return s.answerGroup(w, r, http.StatusCreated, id)
}

func groupName(text string) (string, error) {
	name := strings.TrimSpace(text)
	if f := fault.As(groups.CheckName(name)); f != nil {
		return "", invalid("invalidValue", "displayName "+f.Fields[0].Detail+".")
	}
	return name, nil
}

// maxExternalID bounds what a provider calls a user or a group, in bytes.
const maxExternalID = 1024

func checkExternalID(id *string) error {
	if id != nil && (len(*id) > maxExternalID || strings.ContainsFunc(*id, httpapi.Hidden)) {
		return invalid("invalidValue",
			fmt.Sprintf("externalId must have at most %d bytes, all of them visible characters.", maxExternalID))
	}
	return nil
}

func groupTaken(err error, name string) error {
	if database.IsUniqueViolation(err, "groups_name") {
		return problem{http.StatusConflict, "uniqueness", fmt.Sprintf("A group named %q exists already. If SCIM did not create it, rename it or delete it first.", name)}
	}
	return fmt.Errorf("store group: %w", err)
}

// changeGroup serves PUT, which answers with the group, and PATCH, which does not: groups can be large.
func (s *Service) changeGroup(
	parse func([]byte) (groupChange, error), answer bool,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := pathID(r, "group")
		if err != nil {
			return err
		}
		data, err := read(w, r)
		if err != nil {
			return err
		}
		c, err := parse(data)
		if err != nil {
			return err
		}
		ctx := r.Context()
		if err := s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error { return applyGroup(ctx, q, id, c) }); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "provisioned group changed", "group", id)
		if answer {
			return s.answerGroup(w, r, http.StatusOK, id)
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

func applyGroup(ctx context.Context, q *dbsqlc.Queries, id uuid.UUID, c groupChange) error {
	g, err := q.LockScimGroup(ctx, id)
	if database.IsNotFound(err) {
		return notFound("group", id.String())
	}
	if err != nil {
		return fmt.Errorf("lock group: %w", err)
	}
	after := g.Group
	if c.displayName != nil && *c.displayName != g.Group.DisplayName {
		name, err := groupName(*c.displayName)
		if err != nil {
			return err
		}
		if after, err = q.UpdateScimGroup(ctx, dbsqlc.UpdateScimGroupParams{ID: id, Name: name}); err != nil {
			return groupTaken(err, name)
		}
	}
	if err := checkExternalID(c.externalID); err != nil {
		return err
	}
	if c.externalID != nil {
		if err := q.UpdateScimGroupLink(ctx, dbsqlc.UpdateScimGroupLinkParams{
			GroupID: id, ExternalID: *c.externalID,
		}); err != nil {
			return fmt.Errorf("store group: %w", err)
		}
	}
	if err := changeMembers(ctx, q, id, c.members); err != nil {
		return err
	}
	return recordGroup(ctx, q, g.Group, after, c)
}

// recordGroup writes a change of a group to the audit log, with the ids of the members that came and went.
func recordGroup(ctx context.Context, q *dbsqlc.Queries, before, after dbsqlc.Group, c groupChange) error {
	entry := audit.OfGroup(before, after)
	entry.By = actor
	for _, step := range c.members {
		entry.Diff.Field("members_"+step.op, "", strings.Join(step.ids, " "))
	}
	return audit.Record(ctx, q, entry)
}

// changeMembers applies the steps in their order. A user that the provider does not see cannot become a member; one
// that is no member can be removed.
func changeMembers(ctx context.Context, q *dbsqlc.Queries, group uuid.UUID, steps []memberChange) error {
	for _, step := range steps {
		ids, seen := []uuid.UUID{}, map[uuid.UUID]bool{}
		for _, text := range step.ids {
			id, err := uuid.Parse(text)
			if err != nil && step.op == "remove" {
				continue
			}
			if err != nil {
				return noMember(text)
			}
			if !seen[id] {
				ids, seen[id] = append(ids, id), true
			}
		}
		if step.op == "remove" {
			if err := q.RemoveGroupMembers(ctx, dbsqlc.RemoveGroupMembersParams{
				GroupID: group, Users: ids,
			}); err != nil {
				return fmt.Errorf("remove members: %w", err)
			}
			continue
		}
		if step.op == "replace" {
			if err := q.KeepScimMembers(ctx, dbsqlc.KeepScimMembersParams{GroupID: group, Users: ids}); err != nil {
				return fmt.Errorf("remove members: %w", err)
			}
		}
		n, err := q.AddScimMembers(ctx, dbsqlc.AddScimMembersParams{GroupID: group, Users: ids})
		if err != nil {
			return fmt.Errorf("add members: %w", err)
		}
		if int(n) != len(ids) {
			return noMember(strings.Join(step.ids[:min(len(step.ids), 3)], ", "))
		}
	}
	return nil
}

func noMember(ids string) error {
	return invalid("invalidValue",
		fmt.Sprintf("members must be the ids of users that SCIM shows: not all of %s are.", ids))
}

func (s *Service) deleteGroup(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "group")
	if err != nil {
		return err
	}
	ctx := r.Context()
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		g, err := q.LockScimGroup(ctx, id)
		if database.IsNotFound(err) {
			return notFound("group", id.String())
		}
		if err != nil {
			return fmt.Errorf("lock group: %w", err)
		}
		if _, err := q.DeleteScimGroup(ctx, id); err != nil {
			return fmt.Errorf("delete group: %w", err)
		}
		return recordGroup(ctx, q, g.Group, dbsqlc.Group{}, groupChange{})
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "provisioned group removed", "group", id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
