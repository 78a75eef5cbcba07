package audit_test

import (
	"testing"

	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/internal/sdk"
)

// BenchmarkList lists 25 rows of a million over HTTP, by each filter.
func BenchmarkList(b *testing.B) {
	s := coderdtest.New(b)
	ann := s.User("ann")
	s.Exec(`INSERT INTO audit_logs (id, actor, user_id, action, resource_type, resource_id, resource_target, organization_id, build_reason, status_code, created_at)
		SELECT gen_random_uuid(), 'u' || i % 500, CASE WHEN i % 5000 = 0 THEN $1::uuid ELSE gen_random_uuid() END,
			(ARRAY['create', 'write', 'delete', 'start', 'stop'])[i % 5 + 1], CASE WHEN i % 100000 = 0 THEN 'template' ELSE 'workspace' END, gen_random_uuid(),
			't' || i % 20000, $2, CASE WHEN i % 5 > 2 THEN 'autostop' ELSE '' END, 200, now() - i * interval '1 second'
		FROM generate_series(1, 1000000) i`, ann, s.Org)
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
