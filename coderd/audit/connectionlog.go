package audit

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) searchConnections(r *http.Request) (p dbsqlc.ListConnectionLogsParams, none bool, err error) {
	actor := httpapi.ActorFrom(r.Context())
	extent, err := extentOf(actor, rbac.ConnectionLog)
	if err != nil {
		return p, false, err
	}
	p, none, err = parseConnections(r.Context(), s.db, actor, r.URL.Query().Get("q"))
	p.OrganizationIds, none = within(extent, p.OrganizationIds, none)
	return p, none, err
}

// connectionKeys are the filters of a search, as clients of this API know them.
var connectionKeys = []string{
	"organization", "workspace_owner", "workspace_owner_email", "workspace_id", "type", "username", "user_email", "connection_id", "connected_after",
	"connected_before", "status",
}

// parseConnections is like parse, for the connection log.
func parseConnections(
	ctx context.Context, db *database.DB, actor rbac.Actor, q string,
) (p dbsqlc.ListConnectionLogsParams, none bool, err error) {
	terms, err := httpapi.ParseSearch(q, connectionKeys...)
	if err != nil {
		return p, false, err
	}
	if _, free := terms[""]; free {
		return p, false, fault.New(fault.Invalid, "The search is invalid.").
			WithField("q", "words need a key, such as username:ada")
	}
	p.Type = term(terms, "type")
	if p.WorkspaceID, err = idTerm(terms, "workspace_id"); err != nil {
		return p, false, err
	}
	if p.ConnectionID, err = idTerm(terms, "connection_id"); err != nil {
		return p, false, err
	}
	if p.Since, err = timeTerm(terms, "connected_after", 0); err != nil {
		return p, false, err
	}
	if p.Until, err = timeTerm(terms, "connected_before", 24*time.Hour); err != nil {
		return p, false, err
	}
	switch status := terms["status"]; status {
	case "":
	case "ongoing", "completed":
		p.Ongoing, p.Refused = new(status == "ongoing"), new(false)
	case "refused":
		p.Refused = new(true)
	default:
		return p, false, fault.New(fault.Invalid, "The search is invalid.").
			WithField("q", "status: must be ongoing, completed or refused")
	}
	if p.OwnerIds, err = userTerms(ctx, db, actor, terms, "workspace_owner", "workspace_owner_email"); err != nil {
		return p, false, err
	}
	if p.UserIds, err = userTerms(ctx, db, actor, terms, "username", "user_email"); err != nil {
		return p, false, err
	}
	if p.OrganizationIds, err = organizationTerm(ctx, db, terms); err != nil {
		return p, false, err
	}
	none = p.OwnerIds != nil && len(p.OwnerIds) == 0 || p.UserIds != nil && len(p.UserIds) == 0 ||
		p.OrganizationIds != nil && len(p.OrganizationIds) == 0
	return p, none, nil
}

func (s *Service) listConnections(w http.ResponseWriter, r *http.Request) error {
	limit, offset, err := pageOf(r)
	if err != nil {
		return err
	}
	p, none, err := s.searchConnections(r)
	if err != nil {
		return err
	}
	out := sdk.ConnectionLogsResponse{CountCap: countCap}
	if none {
		return httpapi.Write(w, http.StatusOK, out)
	}
	p.PageLimit, p.PageOffset = int32(limit), int32(offset)
	rows, err := s.db.ListConnectionLogs(r.Context(), p)
	if err != nil {
		return fmt.Errorf("list connection log: %w", err)
	}
	count, err := s.db.CountConnectionLogs(r.Context(), dbsqlc.CountConnectionLogsParams{
		OrganizationIds: p.OrganizationIds, OwnerIds: p.OwnerIds, UserIds: p.UserIds, Type: p.Type,
		WorkspaceID: p.WorkspaceID, ConnectionID: p.ConnectionID,
		Since: p.Since, Until: p.Until, Ongoing: p.Ongoing, Refused: p.Refused, Bound: countCap,
	})
	if err != nil {
		return fmt.Errorf("count connection log: %w", err)
	}
	out.Count = int(count)
	for _, row := range rows {
		out.ConnectionLogs = append(out.ConnectionLogs, connectionJSON(row))
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) exportConnections(w http.ResponseWriter, r *http.Request) error {
	p, none, err := s.searchConnections(r)
	if err != nil {
		return err
	}
	p.PageLimit = exportPage
	return writeLines(w, "connections.jsonl", func() ([]sdk.ConnectionLog, error) {
		if none {
			return nil, nil
		}
		rows, err := s.db.ListConnectionLogs(r.Context(), p)
		if err != nil {
			return nil, fmt.Errorf("export connection log: %w", err)
		}
		none = len(rows) < exportPage
		out := make([]sdk.ConnectionLog, len(rows))
		for i, row := range rows {
			out[i] = connectionJSON(row)
			p.Before, p.BeforeID = &row.ConnectionLog.ConnectTime, &row.ConnectionLog.ID
		}
		return out, nil
	})
}

func connectionJSON(row dbsqlc.ListConnectionLogsRow) sdk.ConnectionLog {
	l := row.ConnectionLog
	out := sdk.ConnectionLog{
		ID: l.ID, ConnectTime: l.ConnectTime, DisconnectTime: l.DisconnectTime, DisconnectReason: l.DisconnectReason,
		WorkspaceOwnerID:       l.WorkspaceOwnerID,
		WorkspaceOwnerUsername: deref(row.OwnerName), WorkspaceID: l.WorkspaceID, WorkspaceName: l.WorkspaceName,
		AgentName: l.AgentName, IP: l.Ip, Type: l.Type,
		Username: deref(row.Username), SlugOrPort: l.SlugOrPort, Path: l.Path, Region: l.Region, BytesIn: l.BytesIn,
		BytesOut: l.BytesOut, Refused: int(l.Refused),
	}
	if row.OrganizationName != nil {
		out.Organization = &sdk.MinimalOrganization{
			ID: l.OrganizationID, Name: *row.OrganizationName, DisplayName: deref(row.OrganizationDisplayName),
		}
	}
	status := int(deref(l.StatusCode))
	if kind := ConnectionType(l.Type); l.Path == pathProxied && kind != Terminal && kind != SSH {
		out.WebInfo = &sdk.ConnectionLogWebInfo{UserAgent: l.UserAgent, SlugOrPort: l.SlugOrPort, StatusCode: status}
		if l.UserID != nil {
			out.WebInfo.User = &sdk.MinimalUser{ID: *l.UserID, Username: deref(row.Username), Name: deref(row.UserName)}
		}
		return out
	}
	out.SSHInfo = &sdk.ConnectionLogSSHInfo{
		ConnectionID: l.ID, DisconnectTime: l.DisconnectTime, DisconnectReason: l.DisconnectReason,
	}
	if l.StatusCode != nil && l.Refused == 0 {
		out.SSHInfo.ExitCode = &status
	}
	return out
}

func deref[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
