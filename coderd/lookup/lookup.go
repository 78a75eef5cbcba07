// Package lookup answers requests for objects that the database does not have. It sits between the database, which
// knows nothing of responses, and rbac, which knows nothing of the database.
package lookup

import (
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// Fault returns the error for a query that failed with err: not found if the row does not exist, otherwise err wrapped
// with doing. err must not be nil.
func Fault(err error, resource rbac.Resource, doing string) error {
	if database.IsNotFound(err) {
		return rbac.NotFound(resource)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Organization returns the organization that the path's {organization} names, by id or name, if the actor may read it.
func Organization(r *http.Request, q *dbsqlc.Queries, actor rbac.Actor) (dbsqlc.Organization, error) {
	org, err := q.GetOrganizationByReference(r.Context(), r.PathValue("organization"))
	if err != nil {
		return org, Fault(err, rbac.Organization, "look up organization")
	}
	if actor.May(rbac.Read, rbac.Of(rbac.Organization, uuid.Nil).In(org.ID)) != nil {
		return dbsqlc.Organization{}, rbac.NotFound(rbac.Organization)
	}
	return org, nil
}
