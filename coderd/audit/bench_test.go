package audit_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// BenchmarkRecord changes a group in a transaction, with and without a row in the audit log.
func BenchmarkRecord(b *testing.B) {
	s := coderdtest.NewRows(b)
	id := uuid.New()
	s.Exec(`INSERT INTO groups (id, organization_id, name) VALUES ($1, $2, 'g')`, id, s.Org)
	for name, record := range map[string]bool{"change": false, "change and row": true} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := s.DB.InTx(context.Background(), func(q *dbsqlc.Queries) error {
					before, err := q.LockGroup(b.Context(), id)
					if err != nil {
						return err
					}
					after, err := q.UpdateGroup(b.Context(), dbsqlc.UpdateGroupParams{ID: id, Name: "g", DisplayName: strconv.Itoa(i)})
					if err != nil || !record {
						return err
					}
					e := audit.OfGroup(before, after)
					e.Action, e.Kind = audit.Write, audit.Group
					return audit.Record(b.Context(), q, e)
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkList lists 25 rows of a million over HTTP, by each filter.
func BenchmarkList(b *testing.B) {
	s := coderdtest.New(b)
	ann := s.User("ann")
	for from := 0; from < 1_000_000; from += 50_000 { // one statement may not take long
		s.Exec(`INSERT INTO audit_logs (id, actor, user_id, action, resource_type, resource_id, resource_target, organization_id, build_reason, status_code, created_at)
		SELECT gen_random_uuid(), 'u' || i % 500, CASE WHEN i % 5000 = 0 THEN $1::uuid ELSE gen_random_uuid() END,
			(ARRAY['create', 'write', 'delete', 'start', 'stop'])[i % 5 + 1], CASE WHEN i % 100000 = 0 THEN 'template' ELSE 'workspace' END, gen_random_uuid(),
			't' || i % 20000, $2, CASE WHEN i % 5 > 2 THEN 'autostop' ELSE '' END, 200, now() - i * interval '1 second'
		FROM generate_series($3::int + 1, $3::int + 50000) i`, ann, s.Org, from)
	}
	s.Exec("VACUUM ANALYZE audit_logs")
	client := s.As("olga")
	for _, q := range []string{"", "username:ann", "resource_type:template", "resource_target:t77", "action:delete", "build_reason:autostop", "username:ann action:delete", "organization:default"} {
		b.Run("q="+q, func(b *testing.B) {
			for b.Loop() {
				if got, err := client.AuditLogs(b.Context(), sdk.LogQuery{Q: q, Limit: 25}); err != nil || len(got.AuditLogs) == 0 {
					b.Fatalf("%+v, %v", got, err)
				}
			}
		})
	}
}
