package coderd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// costing is the result of a build that makes a resource with a daily cost.
func costing(cost int32) *provisionerpb.Result {
	r := coderdtest.Resource(uuid.New())
	r.DailyCost = cost
	return coderdtest.Built("state", r)
}

// TestQuotas: starts count against the allowances of the owner's groups, and none without allowances.
func TestQuotas(t *testing.T) {
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	ann, olga := s.As("ann"), s.As("olga")
	quota := func(want sdk.WorkspaceQuota) {
		t.Helper()
		if got, err := ann.WorkspaceQuota(t.Context(), sdk.DefaultOrganization, sdk.Me); err != nil || got != want {
			t.Errorf("quota: got %+v, %v; want %+v", got, err, want)
		}
	}
	first := s.Workspace("ann", "first", template.ID)
	s.Daemon().Next().Finish(costing(70))
	quota(sdk.WorkspaceQuota{CreditsConsumed: 70, Budget: -1})

	hundred := 40
	if _, err := olga.PatchGroup(t.Context(), s.Org, sdk.PatchGroupRequest{QuotaAllowance: &hundred}); err != nil {
		t.Fatal(err)
	}
	g, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs", QuotaAllowance: 60})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := olga.PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{AddUsers: []string{s.User("ann").String()}}); err != nil {
		t.Fatal(err)
	}
	quota(sdk.WorkspaceQuota{CreditsConsumed: 70, Budget: 100})

	// Two builds run at once: there is room for one of them.
	var both []uuid.UUID
	for _, name := range []string{"second", "third"} {
		both = append(both, s.Workspace("ann", name, template.ID).ID)
	}
	jobs := []*coderdtest.Job{s.Daemon().Next(), s.Daemon().Next()}
	for _, job := range jobs {
		if q := job.GetWorkspaceBuild().GetQuota(); q.GetUsed() != 70 || q.GetAllowance() != 100 {
			t.Errorf("the provisioner is told the quota %v", q)
		}
		job.Finish(costing(30))
	}
	var failed *sdk.Workspace
	for _, id := range both {
		if ws := s.Get(id); ws.LatestBuild.Status == sdk.WorkspaceFailed {
			if failed != nil {
				t.Error("both builds failed")
			}
			failed = &ws
		}
	}
	if failed == nil {
		t.Fatal("both builds exceeded the quota together, and succeeded")
	}
	if want := "This build needs 30 credits a day; ann uses 100 of 100."; failed.LatestBuild.Job.Error != want {
		t.Errorf("error: got %q, want %q", failed.LatestBuild.Job.Error, want)
	}
	// The same start again is refused before it runs; what it left can be deleted.
	_, err = ann.CreateBuild(t.Context(), failed.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart})
	if f := fault.As(err); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Message, "needs 30 credits") {
		t.Errorf("started again: %v, want a conflict with the numbers", err)
	}
	s.Build("ann", failed.ID, sdk.TransitionDelete)
	s.Daemon().Next().Finish(coderdtest.Built(""))
	s.Build("ann", first.ID, sdk.TransitionStop)
	s.Daemon().Next().Finish(coderdtest.Built("state"))
	quota(sdk.WorkspaceQuota{CreditsConsumed: 30, Budget: 100})
	s.Build("ann", first.ID, sdk.TransitionStart)
	s.Daemon().Next().Finish(costing(70))
	if got := s.Get(first.ID).LatestBuild.Status; got != sdk.WorkspaceRunning {
		t.Errorf("within the quota: %s", got)
	}
	// Others do not read it.
	if _, err := s.As("bob").WorkspaceQuota(t.Context(), sdk.DefaultOrganization, "ann"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("bob reads ann's quota: %v, want not found", err)
	}
	if _, err := olga.WorkspaceQuota(t.Context(), sdk.DefaultOrganization, "ann"); err != nil {
		t.Error(err)
	}
}

// sums counts the statements that sum up what a user's workspaces cost.
type sums struct{ n atomic.Int64 }

func (s *sums) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(q.SQL, "-- name: GetQuota ") {
		s.n.Add(1)
	}
	return ctx
}

func (*sums) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestCostsAreSummedWithQuotasOnly checks that a start reads the owner's other workspaces only where a group has an allowance.
func TestCostsAreSummedWithQuotasOnly(t *testing.T) {
	seen := &sums{}
	s := coderdtest.New(t, func(o *coderd.Options) {
		config := o.DB.Pool.Config()
		config.ConnConfig.Tracer = seen
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		o.DB = &database.DB{Queries: dbsqlc.New(pool), Pool: pool}
	})
	template := s.Template("process", nil)
	r := coderdtest.Resource(uuid.New())
	r.DailyCost = 10
	s.Workspace("ann", "first", template.ID)
	s.Daemon().Next().Finish(coderdtest.Built("state", r))
	if n := seen.n.Load(); n != 0 {
		t.Errorf("a start without quotas summed up costs %d times", n)
	}
	allowance := 100
	if _, err := s.As("olga").PatchGroup(t.Context(), s.Org, sdk.PatchGroupRequest{QuotaAllowance: &allowance}); err != nil {
		t.Fatal(err)
	}
	s.Workspace("ann", "second", template.ID)
	if q := s.Daemon().Next().GetWorkspaceBuild().GetQuota(); q.GetUsed() != 10 || seen.n.Load() == 0 {
		t.Errorf("with an allowance the provisioner is told the quota %v", q)
	}
}
