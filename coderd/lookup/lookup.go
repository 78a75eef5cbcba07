// Package lookup answers requests for what the database does not have. It stands between the database, which knows no answers, and
// rbac, which knows no database.
package lookup

import (
	"fmt"
	"net/http"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/rbac"
)

// Fault is what a query that failed with err is answered with: a row that does not exist is not found, and every other error is
// wrapped with what was being done. err must not be nil.
func Fault(err error, resource rbac.Resource, doing string) error {
	if database.IsNotFound(err) {
		return rbac.NotFound(resource)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Organization is the one that the path's {organization} names, by id or name. It does not ask whether the actor may read it.
func Organization(r *http.Request, q *dbsqlc.Queries) (dbsqlc.Organization, error) {
	org, err := q.GetOrganizationByReference(r.Context(), r.PathValue("organization"))
	if err != nil {
		return org, Fault(err, rbac.Organization, "look up organization")
	}
	return org, nil
}
