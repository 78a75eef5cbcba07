package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// maxPage is the most rows that one page contains, and defaultPage what it contains unless the client says
	// otherwise.
	maxPage, defaultPage = 1000, 100
	// countCap bounds how far rows are counted: a count of all rows would read all rows.
	countCap = 10_000
	// maxOffset bounds how many rows a page skips, because PostgreSQL reads them all.
	maxOffset = 100_000
	// exportPage is how many rows an export holds in memory.
	exportPage = 500
)

// Service serves the logs.
type Service struct {
	db *database.DB
}

// New returns the service.
func New(db *database.DB) *Service { return &Service{db: db} }

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	read := rbac.Needs(rbac.Read, rbac.AuditLog)
	mux.Handle("GET /api/v2/audit", read, s.list)
	mux.Handle("GET /api/v2/audit/export", read, s.export)
	readConnections := rbac.Needs(rbac.Read, rbac.ConnectionLog)
	mux.Handle("GET /api/v2/connectionlog", readConnections, s.listConnections)
	mux.Handle("GET /api/v2/connectionlog/export", readConnections, s.exportConnections)
}

// search returns what the request's q selects among the rows that the actor may read. none reports that it selects
// nothing.
func (s *Service) search(r *http.Request) (p dbsqlc.ListAuditLogsParams, none bool, err error) {
	actor := httpapi.ActorFrom(r.Context())
	extent, err := extentOf(actor, rbac.AuditLog)
	if err != nil {
		return p, false, err
	}
	p, none, err = parse(r.Context(), s.db, actor, r.URL.Query().Get("q"))
	p.OrganizationIds, none = within(extent, p.OrganizationIds, none)
	return p, none, err
}

// extentOf returns which rows of a log the actor may read: all, or those of some organizations.
func extentOf(actor rbac.Actor, log rbac.Resource) (rbac.Extent, error) {
	e := actor.Extent(log)
	if !e.All && len(e.Organizations) == 0 {
		return e, fault.New(fault.Forbidden, "You do not have permission to read this log.").
			WithDetail("Requires the role %s.", rbac.RoleAuditor)
	}
	return e, nil
}

// within limits a search for organizations, nil for all, to those of an extent.
func within(e rbac.Extent, wanted []uuid.UUID, none bool) ([]uuid.UUID, bool) {
	switch {
	case e.All:
		return wanted, none
	case wanted == nil:
		return e.Organizations, none
	}
	kept := slices.DeleteFunc(wanted, func(id uuid.UUID) bool { return !slices.Contains(e.Organizations, id) })
	return kept, none || len(kept) == 0
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	limit, offset, err := pageOf(r)
	if err != nil {
		return err
	}
	p, none, err := s.search(r)
	if err != nil {
		return err
	}
	out := sdk.AuditLogsResponse{CountCap: countCap}
	if none {
		return httpapi.Write(w, http.StatusOK, out)
	}
	p.PageLimit, p.PageOffset = int32(limit), int32(offset)
	rows, err := s.db.ListAuditLogs(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list audit log: %w", err)
	}
	count, err := s.db.CountAuditLogs(r.Context(), dbsqlc.CountAuditLogsParams{
		OrganizationIds: p.OrganizationIds, UserIds: p.UserIds, Action: p.Action, ResourceType: p.ResourceType,
		ResourceID:     p.ResourceID,
		ResourceTarget: p.ResourceTarget, BuildReason: p.BuildReason, RequestID: p.RequestID, Since: p.Since,
		Until: p.Until, Bound: countCap,
	})
	if err != nil {
		return fmt.Errorf("count audit log: %w", err)
	}
	out.Count = int(count)
	for _, row := range rows {
		entry, err := toJSON(row)
		if err != nil {
			return err
		}
		out.AuditLogs = append(out.AuditLogs, entry)
	}
	if err := s.name(r.Context(), out.AuditLogs); err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// pageOf returns the page that a request for a log wants.
func pageOf(r *http.Request) (limit, offset int, err error) {
	if err := httpapi.NoAfterID(r); err != nil {
		return 0, 0, err
	}
	if limit, err = httpapi.QueryInt(r, "limit", defaultPage, 1<<30); err != nil {
		return 0, 0, err
	}
	if offset, err = httpapi.QueryInt(r, "offset", 0, maxOffset); err != nil {
		if f := fault.As(err); f != nil {
			err = f.WithDetail("Search for older rows by their time, with date_to or connected_before, or export the log.")
		}
		return 0, 0, err
	}
	if limit == 0 {
		limit = defaultPage
	}
	return min(limit, maxPage), offset, nil
}

func (s *Service) export(w http.ResponseWriter, r *http.Request) error {
	p, none, err := s.search(r)
	if err != nil {
		return err
	}
	p.PageLimit = exportPage
	return writeLines(w, "audit.jsonl", func() ([]sdk.AuditLog, error) {
		if none {
			return nil, nil
		}
		rows, err := s.db.ListAuditLogs(r.Context(), p)
		if err != nil {
			return nil, fmt.Errorf("export audit log: %w", err)
		}
		none = len(rows) < exportPage
		out := make([]sdk.AuditLog, len(rows))
		for i, row := range rows {
			if out[i], err = toJSON(row); err != nil {
				return nil, err
			}
			p.Before, p.BeforeID = &row.AuditLog.CreatedAt, &row.AuditLog.ID
		}
		return out, s.name(r.Context(), out)
	})
}

// writeLines answers with one JSON object per line, one page of them in memory. If next fails after the first page, it
// breaks the connection, so that clients do not mistake a part for the whole.
func writeLines[T any](w http.ResponseWriter, name string, next func() ([]T, error)) error {
	page, err := next()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	for ; len(page) > 0; page, err = next() {
		var buf bytes.Buffer
		lines := json.NewEncoder(&buf)
		for _, item := range page {
			if err := lines.Encode(item); err != nil {
				panic(fmt.Errorf("encode row: %w", err)) // a type that cannot be encoded
			}
		}
		if _, err := buf.WriteTo(w); err != nil {
			return err // the client has disconnected
		}
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func toJSON(row dbsqlc.ListAuditLogsRow) (sdk.AuditLog, error) {
	l := row.AuditLog
	out := rowJSON(l)
	if err := json.Unmarshal(l.Diff, &out.Diff); err != nil {
		return out, fmt.Errorf("decode difference of audit row %s: %w", l.ID, err)
	}
	out.IsDeleted = row.IsDeleted
	if l.OrganizationID != nil && row.OrganizationName != nil {
		out.Organization = &sdk.MinimalOrganization{
			ID: *l.OrganizationID, Name: *row.OrganizationName, DisplayName: *row.OrganizationDisplayName,
		}
	}
	if l.UserID != nil && row.Username != nil {
		out.User = userJSON(row)
	}
	return out, nil
}

func userJSON(row dbsqlc.ListAuditLogsRow) *sdk.User {
	u := &sdk.User{
		ID: *row.AuditLog.UserID, Username: *row.Username, Name: *row.UserName, Email: *row.Email,
		CreatedAt: *row.UserCreatedAt, UpdatedAt: *row.UserUpdatedAt,
		LastSeenAt: row.UserLastSeenAt, Status: sdk.UserStatus(*row.UserStatus),
		LoginType: sdk.LoginType(*row.LoginType),
	}
	for _, role := range row.Roles {
		u.Roles = append(u.Roles, sdk.Role{Name: role})
	}
	return u
}

// rowJSON returns what the row itself tells, without its difference.
func rowJSON(l dbsqlc.AuditLog) sdk.AuditLog {
	out := sdk.AuditLog{
		ID: l.ID, Time: l.CreatedAt, IP: l.Ip, UserAgent: l.UserAgent, ResourceType: l.ResourceType,
		ResourceTarget: l.ResourceTarget,
		Action:         l.Action, StatusCode: int(l.StatusCode), AdditionalFields: l.AdditionalFields, Description: describe(l),
		ResourceLink: link(l), Actor: l.Actor,
	}
	for _, id := range []struct {
		from *uuid.UUID
		to   *uuid.UUID
	}{{l.RequestID, &out.RequestID}, {l.ResourceID, &out.ResourceID}, {l.OrganizationID, &out.OrganizationID}} {
		if id.from != nil {
			*id.to = *id.from
		}
	}
	return out
}

// link returns the dashboard's page of the object, or "".
func link(l dbsqlc.AuditLog) string {
	var fields struct {
		Owner     string `json:"workspace_owner"`
		Workspace string `json:"workspace_name"`
		Number    int    `json:"build_number"`
	}
	if err := json.Unmarshal(l.AdditionalFields, &fields); err != nil {
		return "" // not an object of ours
	}
	organization := ""
	if l.OrganizationID != nil {
		organization = "/organizations/" + l.OrganizationID.String()
	}
	switch kind := Kind(l.ResourceType); {
	case kind == Template && l.ResourceID != nil: // another organization may have a template of the same name
		return "/templates/" + l.ResourceID.String()
	case kind == User:
		return "/users"
	case kind == Organization:
		return organization
	case (kind == OrganizationMember || kind == OrganizationInvitation) && organization != "":
		return organization + "/members"
	case kind == CustomRole && organization != "":
		return organization + "/roles/" + url.PathEscape(l.ResourceTarget)
	case kind == Group && organization != "" && l.ResourceID != nil:
		return organization + "/groups/" + l.ResourceID.String()
	case (kind == Workspace || kind == WorkspaceBuild) && fields.Owner != "" && fields.Workspace != "":
		return "/@" + fields.Owner + "/" + fields.Workspace
	}
	return ""
}
