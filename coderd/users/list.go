package users

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxPage is the most users that one page of a list contains.
	maxPage = 100
	// maxExport is the most users that one export contains: they are read at once, so that an export is complete while
	// users change.
	maxExport = 50_000
)

// orders are the orders of a list of users.
var orders = []sdk.UserOrder{sdk.UsersByName, sdk.UsersBySeen, sdk.UsersByCreated}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := httpapi.QueryInt(r, "limit", maxPage, 1<<30)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(r, "offset", 0, 1<<30)
	if err != nil {
		return err
	}
	p, err := s.selection(r)
	if err != nil {
		return err
	}
	if limit == 0 || limit > maxPage {
		limit = maxPage
	}
	after, err := httpapi.AfterID(r, func(id uuid.UUID) (bool, error) {
		if p.OnlyID != nil {
			return id == *p.OnlyID, nil
		}
		return s.db.UserExists(r.Context(), id)
	})
	switch {
	case err != nil:
		return err
	case after != nil && p.Sort != "" && p.Sort != string(sdk.UsersByName):
		return fault.New(fault.Invalid, "A list by %q cannot be continued after a user.", p.Sort).
			WithField("after_id", "needs the order by username: leave sort out, or use limit and offset")
	}
	page := httpapi.Page{Limit: int32(limit), Offset: int32(offset), After: after}
	rows, count, err := httpapi.Paged(page, func(page httpapi.Page) ([]dbsqlc.ListUsersRow, error) {
		p.PageLimit, p.PageOffset, p.AfterID = page.Limit, page.Offset, page.After
		return s.db.ListUsers(r.Context(), p)
	}, func(row dbsqlc.ListUsersRow) int64 { return row.Total })
	if err != nil {
		return fmt.Errorf("list users: %w", err)
	}
	orgs, err := s.organizations(r.Context(), idsOf(rows)...)
	if err != nil {
		return err
	}
	out := sdk.UsersResponse{Count: count}
	for _, row := range rows {
		out.Users = append(out.Users, toUser(row.User, orgs[row.User.ID]))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func idsOf(rows []dbsqlc.ListUsersRow) []uuid.UUID {
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = row.User.ID
	}
	return ids
}

// selection returns which users a request wants, in which order, among those that its sender may see.
func (s *Service) selection(r *http.Request) (dbsqlc.ListUsersParams, error) {
	p, organization, err := parseSearch(r.URL.Query().Get("q"))
	if err != nil {
		return p, err
	}
	if p.Sort = r.URL.Query().Get("sort"); p.Sort != "" && !slices.Contains(orders, sdk.UserOrder(p.Sort)) {
		return p, fault.New(fault.Invalid, "Users cannot be sorted by %q.", p.Sort).
			WithField("sort", "must be username, seen or created")
	}
	actor := httpapi.ActorFrom(r.Context())
	if !actor.Sees(rbac.User, uuid.Nil) {
		p.OnlyID = &actor.UserID
	}
	if organization == "" {
		return p, nil
	}
	org, err := s.db.GetOrganizationByReference(r.Context(), organization)
	switch {
	case database.IsNotFound(err) || err == nil && actor.May(rbac.Read, rbac.Of(rbac.Organization, uuid.Nil).In(org.ID)) != nil:
		return p, fault.New(fault.Invalid, "The search is not valid: there is no organization %.64q.", organization).
			WithField("q", "organization must be the name or id of an organization")
	case err != nil:
		return p, fmt.Errorf("look up organization: %w", err)
	}
	p.OrganizationID = &org.ID
	return p, nil
}

// parseSearch parses a search such as "status:active role:owner name". It returns the organization beside the rest: its
// name or id.
func parseSearch(q string) (p dbsqlc.ListUsersParams, organization string, err error) {
	p = dbsqlc.ListUsersParams{Statuses: []string{}, LoginTypes: []string{}}
	terms, err := httpapi.ParseSearch(q, "name", "search", "status+", "role", "login_type+", "organization", "github_com_user_id",
		"created_before", "created_after", "last_seen_before", "last_seen_after")
	if err != nil {
		return p, "", err
	}
	if types := terms["login_type"]; types != "" {
		p.LoginTypes = strings.Split(strings.ToLower(types), ",")
	}
	for _, t := range p.LoginTypes {
		if !slices.Contains([]sdk.LoginType{sdk.LoginPassword, sdk.LoginOIDC, sdk.LoginGitHub, sdk.LoginNone}, sdk.LoginType(t)) {
			return p, "", fault.New(fault.Invalid, "The search is not valid: there is no login type %q.", t).
				WithField("q", "login_type must be password, oidc, github or none")
		}
	}
	if id, given := terms["github_com_user_id"]; given {
		if _, err := strconv.ParseInt(id, 10, 64); err != nil {
			return p, "", fault.New(fault.Invalid, "The search is not valid: %q is not the id of a user of github.com.", id).
				WithField("q", "github_com_user_id must be a number")
		}
		p.GithubUserID = id
	}
	for key, into := range map[string]**time.Time{
		"created_before": &p.CreatedBefore, "created_after": &p.CreatedAfter, "last_seen_before": &p.SeenBefore, "last_seen_after": &p.SeenAfter,
	} {
		if *into, err = httpapi.SearchTime(terms, key); err != nil {
			return p, "", err
		}
	}
	p.Search = cmp.Or(terms["name"], terms["search"], terms[""])
	p.Role = strings.ToLower(terms["role"])
	if statuses := terms["status"]; statuses != "" {
		p.Statuses = strings.Split(strings.ToLower(statuses), ",")
	}
	return p, terms["organization"], nil
}

// export answers with all users that a search finds, as CSV.
func (s *Service) export(w http.ResponseWriter, r *http.Request) error {
	p, err := s.selection(r)
	if err != nil {
		return err
	}
	p.PageLimit = maxExport
	rows, err := s.db.ListUsers(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list users: %w", err)
	}
	if len(rows) > 0 && rows[0].Total > maxExport {
		return fault.New(fault.Invalid, "The search finds %d users, and an export has at most %d.", rows[0].Total, maxExport).
			WithDetail("Export fewer at a time, such as those of one organization, with organization: in the search.")
	}
	members, err := s.organizations(r.Context(), idsOf(rows)...)
	if err != nil {
		return err
	}
	actor := httpapi.ActorFrom(r.Context())
	seen := actor.Extent(rbac.Organization)
	orgs, err := s.db.ListOrganizations(r.Context(), dbsqlc.ListOrganizationsParams{
		AllOfThem: seen.All, Ids: seen.Organizations,
	})
	if err != nil {
		return fmt.Errorf("list organizations: %w", err)
	}
	names := map[uuid.UUID]string{}
	for _, o := range orgs {
		names[o.ID] = o.Name
	}
	table := httpapi.NewCSV(w, "users.csv")
	w.WriteHeader(http.StatusOK)
	table.Row("username", "name", "email", "status", "roles", "login_type", "service_account", "organizations",
		"last_seen_at", "created_at", "id")
	for _, row := range rows {
		u, in := row.User, []string{}
		for _, id := range members[u.ID] {
			if name := names[id]; name != "" {
				in = append(in, name)
			}
		}
		slices.Sort(in)
		table.Row(u.Username, u.Name, Address(u), u.Status, strings.Join(u.Roles, " "), u.LoginType,
			strconv.FormatBool(u.IsServiceAccount),
			strings.Join(in, " "), httpapi.CSVTime(u.LastSeenAt), httpapi.CSVTime(&u.CreatedAt), u.ID.String())
	}
	return table.Close()
}
