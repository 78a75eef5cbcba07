package templates

import (
	"context"
	"fmt"
	"slices"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// checkIdentity refuses audiences that no ID token can have.
func checkIdentity(wanted sdk.TemplateIdentity) error {
	if wanted.IdentityAudiences != nil {
		if _, err := identity.CheckAudiences(*wanted.IdentityAudiences); err != nil {
			return fault.As(err).WithField("identity_audiences", "has an invalid audience, or too many")
		}
	}
	if audience := or(wanted.IdentityBuildAudience, ""); audience != "" {
		if err := identity.CheckAudience(audience); err != nil {
			return fault.As(err).WithField("identity_build_audience", "is an invalid audience")
		}
	}
	return nil
}

// setIdentity changes for whom workspaces and builds of a template get ID tokens. What checkIdentity refuses is an
// error.
func setIdentity(
	ctx context.Context, q *dbsqlc.Queries, t dbsqlc.Template, wanted sdk.TemplateIdentity,
) (dbsqlc.Template, error) {
	p := dbsqlc.UpdateTemplateIdentityParams{
		ID: t.ID, IdentityAudiences: t.IdentityAudiences,
		IdentityBuildAudience: or(wanted.IdentityBuildAudience, t.IdentityBuildAudience),
	}
	if wanted.IdentityAudiences != nil {
		var err error
		if p.IdentityAudiences, err = identity.CheckAudiences(*wanted.IdentityAudiences); err != nil {
			return t, err
		}
	}
	if slices.Equal(p.IdentityAudiences, t.IdentityAudiences) && p.IdentityBuildAudience == t.IdentityBuildAudience {
		return t, nil
	}
	t, err := q.UpdateTemplateIdentity(ctx, p)
	if err != nil {
		return t, fmt.Errorf("store audiences of ID tokens: %w", err)
	}
	return t, nil
}
