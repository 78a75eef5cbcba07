package health_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestReportNamesAwaitedJobs: the report says at once for which jobs a stopping server waits, although its checks are
// not repeated, and only to owners. Jobs of external provisioners are not awaited.
func TestReportNamesAwaitedJobs(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	client := s.As("olga")
	ask := func() sdk.ServerHealth {
		t.Helper()
		report, err := client.Health(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Servers) != 1 {
			t.Fatalf("the report names %d servers, want 1", len(report.Servers))
		}
		return report.Servers[0]
	}
	before := ask()
	if before.Stopping || len(before.Awaits) != 0 {
		t.Errorf("before: %+v", before)
	}
	own, external := uuid.New(), uuid.New()
	for id, name := range map[uuid.UUID]string{own: "own", external: "external"} {
		s.Exec(`INSERT INTO provisioner_daemons (id, organization_id, name, version, online, built_in, server_id)
			VALUES ($1, $2, $3, 'v1', true, $4, $5)`, id, s.Org, name, id == own, before.ID)
	}
	job, other := s.JobRow(sdk.JobTemplateImport, sdk.JobPending), s.JobRow(sdk.JobTemplateImport, sdk.JobPending)
	for id, worker := range map[uuid.UUID]uuid.UUID{job: own, other: external} {
		s.Exec(`UPDATE provisioner_jobs SET status = 'running', started_at = now(), worker_id = $2
			WHERE id = $1`, id, worker)
	}
	if got := ask(); got.Stopping || len(got.Awaits) != 0 {
		t.Errorf("while the server serves: %+v", got)
	}
	s.Exec(`UPDATE provisioner_jobs SET interrupted_at = now() + interval '1 minute' WHERE id = $1`, job)
	got := ask()
	if !got.Stopping || len(got.Awaits) != 1 {
		t.Fatalf("while the server stops: %+v", got)
	}
	if a := got.Awaits[0]; a.ID != job || a.Provisioner != "own" || a.Initiator == "" || a.InterruptedAt.IsZero() ||
		a.Type != sdk.JobTemplateImport || a.Workspace != "" {
		t.Errorf("while the server stops, it waits for %+v", a)
	}
	s.Exec(`UPDATE provisioner_jobs SET status = 'succeeded', completed_at = now() WHERE id = $1`, job)
	if got := ask(); len(got.Awaits) != 0 {
		t.Errorf("after the job: %+v", got)
	}
	_, err := s.As("mia").Health(t.Context())
	if code := fault.CodeOf(err); code != fault.NotFound && code != fault.Forbidden {
		t.Errorf("a member: %v", err)
	}
}
