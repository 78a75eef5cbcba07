package organizations

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxChecks bounds the questions of one request, and maxLookups those that name an object, which cost a query each.
const (
	maxChecks  = 200
	maxLookups = 20
)

// authCheck answers what the caller may do, by the function that decides the requests themselves.
func (s *Service) authCheck(w http.ResponseWriter, r *http.Request) error {
	var req sdk.AuthorizationRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if len(req.Checks) > maxChecks {
		return fault.New(fault.Invalid, "There are too many checks.").
			WithField("checks", fmt.Sprintf("must be at most %d", maxChecks))
	}
	lookups := 0
	out := make(sdk.AuthorizationResponse, len(req.Checks))
	for _, key := range slices.Sorted(maps.Keys(req.Checks)) {
		c := req.Checks[key]
		if c.Object.ResourceID != "" {
			if lookups++; lookups > maxLookups {
				return fault.New(fault.Invalid, "There are too many checks of single objects.").
					WithField("checks", fmt.Sprintf("must name at most %d objects by resource_id", maxLookups))
			}
		}
		ok, err := s.check(r.Context(), httpapi.ActorFrom(r.Context()).Current(), c)
		if f := fault.As(err); f != nil && f.Code == fault.Invalid {
			return fault.New(fault.Invalid, "The check %q is not valid: %s", key, f.Message)
		}
		if err != nil {
			return err
		}
		out[key] = ok
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// check answers one question.
func (s *Service) check(ctx context.Context, actor rbac.Actor, c sdk.AuthorizationCheck) (bool, error) {
	powers, err := meaning(c.Object.ResourceType, c.Action)
	if err != nil {
		return false, err
	}
	o, err := s.object(ctx, actor, c.Object, powers[0].Resource)
	if fault.CodeOf(err) == fault.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, p := range powers {
		allowed := actor.May(p.Action, o.As(p.Resource)) == nil
		if c.Object.AnyOrgOwner && c.Object.OrganizationID == "" {
			allowed = slices.ContainsFunc(append(actor.Organizations(), uuid.Nil), func(org uuid.UUID) bool {
				return actor.May(p.Action, o.As(p.Resource).In(org)) == nil
			})
		}
		if !allowed {
			return false, nil
		}
	}
	return true, nil
}

// meaning returns the powers that a question is about: in the clients' words, or in those of the permission table with
// underscores, such as "workspace_build". There is at least one.
func meaning(resource, action string) (means, error) {
	for _, known := range []map[string]map[string]means{words, siteWords} {
		if m := known[resource][action]; len(m) > 0 {
			return m, nil
		}
	}
	name := rbac.Resource(strings.ReplaceAll(resource, "_", " "))
	for _, row := range rbac.Rows() {
		if strings.EqualFold(string(row.Resource), string(name)) && string(row.Action) == action {
			return means{row.Power}, nil
		}
	}
	return nil, fault.New(fault.Invalid, "The action %q of %q is unknown.", action, resource)
}

// object returns what a question is about. The fault is NotFound if the object does not exist.
func (s *Service) object(
	ctx context.Context, actor rbac.Actor, given sdk.AuthorizationObject, resource rbac.Resource,
) (o rbac.Object, err error) {
	o = rbac.Of(resource, uuid.Nil)
	parse := func(field, text string) (id uuid.UUID) {
		if text == "" || err != nil {
			return uuid.Nil
		}
		if id, err = uuid.Parse(text); err != nil {
			err = fault.New(fault.Invalid, "%s must be an id.", field)
		}
		return id
	}
	if given.OwnerID == sdk.Me {
		o.Owner = actor.UserID
	} else {
		o.Owner = parse("owner_id", given.OwnerID)
	}
	o.Organization = parse("organization_id", given.OrganizationID)
	id := parse("resource_id", given.ResourceID)
	if err != nil || id == uuid.Nil {
		return o, err
	}
	switch resource {
	case rbac.Organization:
		return o.In(id), nil
	case rbac.User:
		user, err := s.db.GetUser(ctx, id)
		if err != nil {
			return o, lookup.Fault(err, resource, "read user")
		}
		return s.users.Account(ctx, user)
	case rbac.Template, rbac.TemplateVersion:
		row, err := s.db.GetTemplateObject(ctx, id)
		if err != nil {
			return o, lookup.Fault(err, resource, "read template")
		}
		return rbac.Of(resource, uuid.Nil).In(row.OrganizationID).SharedWith(row.Sharing).WithID(id), nil
	case rbac.Workspace, rbac.WorkspaceBuild, rbac.Agent:
		row, err := s.db.GetWorkspaceObject(ctx, id)
		if err != nil {
			return o, lookup.Fault(err, resource, "read workspace")
		}
		return rbac.Of(resource, row.OwnerID).In(row.OrganizationID).SharedWith(row.Sharing).WithID(id), nil
	case rbac.Group:
		org, err := s.db.GetGroupOrganization(ctx, id)
		if err != nil {
			return o, lookup.Fault(err, resource, "read group")
		}
		return o.In(org), nil
	}
	return o, fault.New(fault.Invalid, "resource_id cannot be used with %s: give owner_id and organization_id.",
		cmp.Or(given.ResourceType, "this type"))
}
