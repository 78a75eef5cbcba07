package lookup_test

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestFault(t *testing.T) {
	t.Parallel()
	if err := lookup.Fault(pgx.ErrNoRows, rbac.Template, "read template"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("no row: %v", err)
	}
	cause := errors.New("the disk is full")
	if err := lookup.Fault(cause, rbac.Template, "read template"); fault.CodeOf(err) != fault.Internal || !errors.Is(err, cause) || err.Error() != "read template: the disk is full" {
		t.Errorf("another error: %v", err)
	}
}

func TestOrganization(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	known, err := db.GetDefaultOrganization(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, reference := range []string{"default", known.Name, known.ID.String(), "elsewhere", "", "x' OR 'a'='a"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetPathValue("organization", reference)
		got, err := lookup.Organization(r, db.Queries, rbac.Actor{UserID: uuid.New(), Memberships: []rbac.Membership{{Organization: known.ID}}})
		exists := reference == "default" || reference == known.Name || reference == known.ID.String()
		if exists && (err != nil || got.ID != known.ID) || !exists && fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%q: %+v, %v", reference, got, err)
		}
		if _, err := lookup.Organization(r, db.Queries, rbac.Actor{UserID: uuid.New()}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%q for an outsider: %v", reference, err)
		}
	}
}
