package workspaces_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestListByStatus checks that every status that a list can filter by is the one that the object shows.
func TestListByStatus(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws := w.Workspace("ann", "dev", w.Template("process", process()).ID)
	job := ws.LatestBuild.Job.ID
	for _, transition := range []sdk.Transition{sdk.TransitionStart, sdk.TransitionStop, sdk.TransitionDelete} {
		w.Exec(`UPDATE workspace_builds SET transition = $2 WHERE job_id = $1`, job, string(transition))
		for _, status := range []sdk.JobStatus{sdk.JobPending, sdk.JobRunning, sdk.JobSucceeded, sdk.JobCanceling, sdk.JobCanceled, sdk.JobFailed} {
			w.Exec(`UPDATE provisioner_jobs SET status = $2, started_at = now(), completed_at = CASE WHEN $3 THEN now() END WHERE id = $1`, job, string(status), status.Ended())
			want := transition.Status(status)
			got, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{Q: "status:" + string(want)})
			if err != nil || got.Count != 1 || len(got.Workspaces) != 1 || got.Workspaces[0].LatestBuild.Status != want {
				t.Errorf("%s %s: status:%s lists %+v, %v", transition, status, want, got, err)
			}
			other := sdk.WorkspaceFailed
			if want == other {
				other = sdk.WorkspaceRunning
			}
			if got, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{Q: "status:" + string(other)}); err != nil || got.Count != 0 {
				t.Errorf("%s %s: status:%s lists %d, %v", transition, status, other, got.Count, err)
			}
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	process, other := w.Template("process", process()), w.Template("other", process())
	w.Workspace("ann", "dev", process.ID)
	w.Workspace("ann", "docs", other.ID)
	w.Workspace("bob", "dev", process.ID)
	for _, tt := range []struct {
		who, q        string
		limit, offset int
		want          []string
		count         int
	}{
		{"ann", "", 0, 0, []string{"ann/dev", "ann/docs"}, 2},
		{"ann", "owner:me", 0, 0, []string{"ann/dev", "ann/docs"}, 2},
		{"ann", "owner:bob", 0, 0, nil, 0},
		{"tom", "", 0, 0, []string{"ann/dev", "ann/docs", "bob/dev"}, 3},
		{"tom", "owner:me", 0, 0, nil, 0},
		{"tom", "owner:BOB", 0, 0, []string{"bob/dev"}, 1},
		{"tom", "owner:" + w.User("bob").String(), 0, 0, []string{"bob/dev"}, 1},
		{"tom", "name:DE", 0, 0, []string{"ann/dev", "bob/dev"}, 2},
		{"tom", "name:%", 0, 0, nil, 0},
		{"tom", "doc", 0, 0, []string{"ann/docs"}, 1},
		{"tom", "ann/dev", 0, 0, []string{"ann/dev"}, 1},
		{"tom", "template:other", 0, 0, []string{"ann/docs"}, 1},
		{"tom", "owner:ann template:process name:dev status:pending", 0, 0, []string{"ann/dev"}, 1},
		{"tom", "outdated:true", 0, 0, nil, 0},
		{"tom", "", 1, 1, []string{"ann/docs"}, 3},
		{"tom", "", 2, 2, []string{"bob/dev"}, 3},
		{"tom", "", 2, 10, nil, 3},
	} {
		got, err := w.As(tt.who).Workspaces(t.Context(), sdk.WorkspacesQuery{Q: tt.q, Limit: tt.limit, Offset: tt.offset})
		if err != nil {
			t.Errorf("%s %q: %v", tt.who, tt.q, err)
			continue
		}
		var names []string
		for _, ws := range got.Workspaces {
			names = append(names, ws.OwnerName+"/"+ws.Name)
		}
		if diff := cmp.Diff(tt.want, names); diff != "" || got.Count != tt.count {
			t.Errorf("%s %q from %d: count %d, want %d (-want +got):\n%s", tt.who, tt.q, tt.offset, got.Count, tt.count, diff)
		}
	}
	for _, q := range []string{"status:broken", "color:red", "id:x", "outdated:maybe"} {
		if _, err := w.As("tom").Workspaces(t.Context(), sdk.WorkspacesQuery{Q: q}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v, want invalid", q, err)
		}
	}
}

// fill makes n running workspaces for ann with an agent each, without running jobs. It makes at most fifty at once:
// PostgreSQL ends a statement that takes too long, as one for a thousand does on a busy machine.
func fill(t testing.TB, w *coderdtest.Server, template sdk.Template, n int) {
	t.Helper()
	const statement = `
		WITH n AS (SELECT i, gen_random_uuid() w, gen_random_uuid() j, gen_random_uuid() r, gen_random_uuid() a, gen_random_uuid() s FROM generate_series(1, $1) i),
		ws AS (INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) SELECT w, $2, $3, $4, 'w' || i || '-' || substr(w::text, 1, 8) FROM n),
		jb AS (INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
			SELECT n.j, $2, $3, 'workspace_build', f.id, 'succeeded', now(), now() FROM n, (SELECT id FROM files LIMIT 1) f),
		bl AS (INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id) SELECT gen_random_uuid(), w, 1, $5, j, 'start', $3 FROM n),
		rs AS (INSERT INTO workspace_resources (id, job_id, transition, type, name) SELECT r, j, 'start', 'terraform_data', 'dev' FROM n),
		ag AS (INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name) SELECT a, r, w, 1, 'main' FROM n),
		lg AS (INSERT INTO workspace_agent_log_sources (id, agent_id, display_name) SELECT s, a, 'startup' FROM n)
		INSERT INTO workspace_agent_scripts (id, agent_id, log_source_id, script) SELECT gen_random_uuid(), a, s, 'true' FROM n`
	for n > 0 {
		some := min(n, 50)
		w.Exec(statement, some, w.Org, w.User("ann"), template.ID, template.ActiveVersionID)
		n -= some
	}
}

func TestListMakesAConstantNumberOfQueries(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	// Take the least of several requests, because the queue runs its own queries meanwhile.
	count := func() int {
		t.Helper()
		least := math.MaxInt
		for range 5 {
			before := w.Queries.Count()
			if _, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{}); err != nil {
				t.Fatal(err)
			}
			least = min(least, w.Queries.Count()-before)
		}
		return least
	}
	fill(t, w, template, 2)
	few := count()
	fill(t, w, template, 998)
	list, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{})
	if err != nil || list.Count != 1000 || len(list.Workspaces) != 1000 || len(list.Workspaces[999].LatestBuild.Resources[0].Agents[0].Scripts) != 1 {
		t.Fatalf("list: %d of %d, %v", len(list.Workspaces), list.Count, err)
	}
	if many := count(); many != few || few == 0 {
		t.Errorf("%d queries for 1000 workspaces, %d for 2", many, few)
	}
}

// BenchmarkList1000 measures the server's time for the list, until its last byte has been read: it does not include the
// client's work.
func BenchmarkList1000(b *testing.B) {
	w := coderdtest.New(b)
	fill(b, w, w.Template("process", process()), 1000)
	w.Exec(`ANALYZE`) // as autovacuum has done where a thousand workspaces have accumulated
	client := w.As("ann").HTTP()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, w.URL.JoinPath("/api/v2/workspaces").String(), nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set(sdk.SessionHeader, w.Token("ann"))
		answer, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
			b.Fatal(answer.Status, err)
		}
		b.SetBytes(n)
	}
}

// TestListIsBounded checks that one answer lists at most a thousand workspaces, whatever limit the client asks for, and its
// count includes all: clients read page by page.
func TestListIsBounded(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	fill(t, w, w.Template("process", process()), 1100)
	for _, limit := range []int{0, 1001, 1 << 29} {
		got, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{Limit: limit})
		if err != nil || len(got.Workspaces) != 1000 || got.Count != 1100 {
			t.Errorf("limit %d: %d of %d, %v; want 1000 of 1100", limit, len(got.Workspaces), got.Count, err)
		}
	}
	got, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{Offset: 1000})
	if err != nil || len(got.Workspaces) != 100 || got.Count != 1100 {
		t.Errorf("from 1000: %d of %d, %v", len(got.Workspaces), got.Count, err)
	}
}

// BenchmarkList25of10000 measures a page of 25 out of 10 000 workspaces with ten builds each, for an owner who sees all of
// them, and the query that the scheduler runs every half minute.
func BenchmarkList25of10000(b *testing.B) {
	w := coderdtest.New(b)
	template := w.Template("process", process())
	w.Exec(`INSERT INTO users (id, username, email) SELECT md5(n::text)::uuid, 'user' || n, 'user' || n || '@example.com' FROM generate_series(0, 999) n`)
	fill(b, w, template, 10_000)
	w.Exec(`UPDATE workspaces SET owner_id = md5((abs(hashtext(id::text)) % 1000)::text)::uuid`)
	w.Exec(`ALTER TABLE workspace_builds DISABLE TRIGGER USER`)
	w.Exec(`ALTER TABLE provisioner_jobs DISABLE TRIGGER USER`)
	for number := 2; number <= 10; number++ {
		w.Exec(`WITH n AS (SELECT id AS w, gen_random_uuid() AS j FROM workspaces),
			jb AS (INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
				SELECT n.j, $1, $2, 'workspace_build', f.id, 'succeeded', now(), now() FROM n, (SELECT id FROM files LIMIT 1) f)
			INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id, deadline)
				SELECT gen_random_uuid(), w, $4, $3, j, 'start', $2, now() + interval '1 hour' FROM n`,
			w.Org, w.User("ann"), template.ActiveVersionID, number)
	}
	w.Exec(`UPDATE workspaces w SET latest_build_id = b.id, latest_build_number = 10, latest_deadline = b.deadline
		FROM workspace_builds b WHERE b.workspace_id = w.id AND b.build_number = 10`)
	w.Exec(`VACUUM ANALYZE`)
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			got, err := w.As("tom").Workspaces(b.Context(), sdk.WorkspacesQuery{Limit: 25})
			if err != nil || len(got.Workspaces) != 25 || got.Count != 10_000 {
				b.Fatal(len(got.Workspaces), got.Count, err)
			}
		}
	})
	b.Run("nothing due", func(b *testing.B) {
		if err := w.Workspaces.RunSchedule(b.Context(), time.Now()); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if got, err := w.DB.ListPolicyDue(b.Context(), dbsqlc.ListPolicyDueParams{At: time.Now(), MaxRows: 200}); err != nil || len(got) != 0 {
				b.Fatal(len(got), err)
			}
		}
	})
}
