package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// keys are the filters of a search, as clients of this API know them.
var keys = []string{
	"resource_type", "resource_id", "resource_target", "action", "username", "email", "date_from", "date_to", "build_reason", "organization", "request_id",
}

// parse turns a search such as "action:delete username:ann" into parameters. Free text is an object's name. none
// reports that the search names a user or an organization that does not exist.
func parse(
	ctx context.Context, db *database.DB, actor rbac.Actor, q string,
) (p dbsqlc.ListAuditLogsParams, none bool, err error) {
	terms, err := httpapi.ParseSearch(q, keys...)
	if err != nil {
		return p, false, err
	}
	p.ResourceType, p.Action = term(terms, "resource_type"), term(terms, "action")
	p.ResourceTarget, p.BuildReason = term(terms, "resource_target"), term(terms, "build_reason")
	if free := term(terms, ""); p.ResourceTarget == nil {
		p.ResourceTarget = free
	}
	if p.ResourceID, err = idTerm(terms, "resource_id"); err != nil {
		return p, false, err
	}
	if p.RequestID, err = idTerm(terms, "request_id"); err != nil {
		return p, false, err
	}
	if p.Since, err = timeTerm(terms, "date_from", 0); err != nil {
		return p, false, err
	}
	if p.Until, err = timeTerm(terms, "date_to", 24*time.Hour); err != nil {
		return p, false, err
	}
	if p.UserIds, err = userTerms(ctx, db, actor, terms, "username", "email"); err != nil {
		return p, false, err
	}
	if p.OrganizationIds, err = organizationTerm(ctx, db, terms); err != nil {
		return p, false, err
	}
	none = p.UserIds != nil && len(p.UserIds) == 0 || p.OrganizationIds != nil && len(p.OrganizationIds) == 0
	return p, none, nil
}

// userTerms returns the users whom all of the terms name: nil if there is no such term, empty if there is no such user.
func userTerms(
	ctx context.Context, db *database.DB, actor rbac.Actor, terms map[string]string, keys ...string,
) ([]uuid.UUID, error) {
	var all []uuid.UUID
	for _, key := range keys {
		reference, ok := terms[key]
		if !ok {
			continue
		}
		ids := []uuid.UUID{actor.UserID}
		if reference != sdk.Me {
			var err error
			if ids, err = db.ListUserIDs(ctx, reference); err != nil {
				return nil, fmt.Errorf("look up user: %w", err)
			}
		}
		if all != nil {
			ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return !slices.Contains(all, id) })
		}
		all = ids
	}
	return all, nil
}

// organizationTerm returns the organization that the terms name: nil if there is no such term, empty if there is none.
func organizationTerm(ctx context.Context, db *database.DB, terms map[string]string) ([]uuid.UUID, error) {
	name, ok := terms["organization"]
	if !ok {
		return nil, nil
	}
	org, err := db.GetOrganizationByReference(ctx, name)
	if database.IsNotFound(err) {
		return []uuid.UUID{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up organization: %w", err)
	}
	return []uuid.UUID{org.ID}, nil
}

func term(terms map[string]string, key string) *string {
	if text, ok := terms[key]; ok {
		return &text
	}
	return nil
}

func idTerm(terms map[string]string, key string) (*uuid.UUID, error) {
	text, ok := terms[key]
	if !ok {
		return nil, nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The search is invalid.").WithField("q", key+": must be a UUID")
	}
	return &id, nil
}

// timeTerm reads a day, whose end is day later than its beginning, or a moment.
func timeTerm(terms map[string]string, key string, day time.Duration) (*time.Time, error) {
	text, ok := terms[key]
	if !ok {
		return nil, nil
	}
	at, err := time.Parse(time.DateOnly, text)
	if err == nil {
		at = at.Add(day)
	} else if at, err = time.Parse(time.RFC3339, text); err != nil {
		return nil, fault.New(fault.Invalid, "The search is invalid.").
			WithField("q", key+": must be a day (2006-01-02) or an RFC 3339 time, in UTC")
	}
	return &at, nil
}
