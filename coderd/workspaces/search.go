package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// searchKeys are the terms of a search for workspaces. Clients use all of them.
var searchKeys = []string{
	"owner", "name", "template", "organization", "status", "id", "outdated", "deleted", "dormant", "is-dormant", "shared", "shared_with_user", "shared_with_group",
	"has-agent", "healthy", "param+", "last_used_before", "last_used_after", "has-ai-task", "has_ai_task", "has-external-agent", "has_external_agent",
}

// filter turns a search into a query.
func (s *Service) filter(ctx context.Context, actor rbac.Actor, search string) (dbsqlc.ListWorkspaceRowsParams, error) {
	p := readable(actor)
	terms, err := httpapi.ParseSearch(search, searchKeys...)
	if err != nil {
		return p, err
	}
	refuse := func(detail string) error {
		return fault.New(fault.Invalid, "The search is invalid.").WithField("q", detail)
	}
	// People write a workspace as owner/name in the free text.
	if owner, name, ok := strings.Cut(terms[""], "/"); ok {
		terms[""], terms["name"] = "", name
		terms["owner"] = owner
	}
	p.OwnerName, p.Name, p.TemplateName, p.Status = terms["owner"], strings.TrimSpace(terms["name"]+terms[""]), terms["template"], terms["status"]
	if p.OwnerName == sdk.Me {
		p.OwnerName, p.OwnerID = "", &actor.UserID
	} else if id, err := uuid.Parse(p.OwnerName); err == nil {
		p.OwnerName, p.OwnerID = "", &id
	}
	if p.Status != "" && !slices.Contains(statuses, sdk.WorkspaceStatus(p.Status)) {
		return p, refuse("status: does not know " + strconv.Quote(p.Status))
	}
	if name := terms["organization"]; name != "" {
		org, err := s.opts.DB.GetOrganizationByReference(ctx, name)
		if err != nil && !database.IsNotFound(err) {
			return p, fmt.Errorf("look up organization: %w", err)
		}
		p.OrganizationID = &org.ID // an unknown one has no workspaces
	}
	if text := terms["id"]; text != "" {
		id, err := uuid.Parse(text)
		if err != nil {
			return p, refuse("id: must be a UUID")
		}
		p.Ids = []uuid.UUID{id}
	}
	// Lists leave dormant workspaces out unless the search names them.
	dormant := false
	if p.Dormant = &dormant; p.Ids != nil {
		p.Dormant = nil
	}
	for key, set := range map[string]func(bool){
		"dormant":    func(b bool) { p.Dormant = &b },
		"is-dormant": func(b bool) { p.Dormant = &b },
		"outdated":   func(b bool) { p.Outdated = &b },
		"deleted":    func(b bool) { p.IncludeDeleted = b },
		"shared":     func(b bool) { p.Shared = &b },
	} {
		if text := terms[key]; text != "" {
			b, err := strconv.ParseBool(text)
			if err != nil {
				return p, refuse(key + ": must be true or false")
			}
			set(b)
		}
	}
	if p.Status == string(sdk.WorkspaceDeleted) {
		p.IncludeDeleted = true
	}
	if p.IncludeDeleted && terms["dormant"]+terms["is-dormant"] == "" {
		p.Dormant = nil // a deleted workspace may have been dormant
	}
	if err := filterMore(&p, terms); err != nil {
		return p, err
	}
	return p, s.filterShared(ctx, actor, &p, terms["shared_with_user"], terms["shared_with_group"])
}

// filterMore handles the terms about agents, parameters and use, and those about what this server does not have: no
// workspace has it.
func filterMore(p *dbsqlc.ListWorkspaceRowsParams, terms map[string]string) (err error) {
	if p.UsedBefore, err = httpapi.SearchTime(terms, "last_used_before"); err != nil {
		return err
	}
	if p.UsedAfter, err = httpapi.SearchTime(terms, "last_used_after"); err != nil {
		return err
	}
	if p.Healthy, err = httpapi.SearchBool(terms, "healthy"); err != nil {
		return err
	}
	if status, given := terms["has-agent"]; given {
		if !slices.Contains([]sdk.AgentStatus{sdk.AgentConnecting, sdk.AgentConnected, sdk.AgentDisconnected, sdk.AgentTimeout}, sdk.AgentStatus(status)) {
			return fault.New(fault.Invalid, "The search is invalid.").
				WithField("q", "has-agent: must be connecting, connected, disconnected or timeout")
		}
		p.AgentStatus = &status
	}
	if params, given := terms["param"]; given {
		p.Params = strings.Split(params, ",")
	}
	for _, key := range []string{"has-external-agent", "has_external_agent"} {
		wanted, err := httpapi.SearchBool(terms, key)
		if err != nil {
			return err
		}
		if wanted != nil {
			p.External = wanted
		}
	}
	for _, key := range []string{"has-ai-task", "has_ai_task"} {
		wanted, err := httpapi.SearchBool(terms, key)
		if err != nil {
			return err
		}
		if wanted != nil && *wanted {
			p.Ids = []uuid.UUID{}
		}
	}
	return nil
}
