package database_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

// TestUUIDs checks that ids survive the round trip through PostgreSQL in every form that queries use, whatever is known about
// their types.
func TestUUIDs(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t).Pool
	a, b := uuid.New(), uuid.New()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
		var one, null uuid.UUID
		var pointer, none *uuid.UUID
		var list, empty, nothing []uuid.UUID
		var text string
		err := pool.QueryRow(t.Context(), `SELECT $1::uuid, $2::uuid, NULL::uuid, NULL::uuid, $3::uuid[], $4::uuid[], NULL::uuid[], $1::uuid::text, $5::uuid`,
			mode, a, &b, []uuid.UUID{b, a}, []uuid.UUID{}, (*uuid.UUID)(nil)).
			Scan(&one, &pointer, &null, &none, &list, &empty, &nothing, &text, &none)
		if err != nil {
			t.Errorf("%s: %v", mode, err)
			continue
		}
		if one != a || pointer == nil || *pointer != b || null != uuid.Nil || none != nil || text != a.String() || nothing != nil || empty == nil {
			t.Errorf("%s: %s %s %s %v %q %v %v", mode, one, pointer, null, none, text, nothing, empty)
		}
		if diff := cmp.Diff([]uuid.UUID{b, a}, list); diff != "" {
			t.Errorf("%s: array (-want +got):\n%s", mode, diff)
		}
	}
	// Before PostgreSQL has described the types, ids are sent as text.
	var id uuid.UUID
	if err := pool.QueryRow(t.Context(), `SELECT $1::uuid`, pgx.QueryExecModeSimpleProtocol, a).Scan(&id); err != nil || id != a {
		t.Errorf("as text: %s, %v", id, err)
	}
	if err := pool.QueryRow(t.Context(), `SELECT 'no id'`).Scan(&id); err == nil {
		t.Errorf("text became %s", id)
	}
}
