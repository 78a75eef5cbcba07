package coderd_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

// statements collects the queries of requests, with their arguments, and claims of jobs.
type statements struct {
	mu  sync.Mutex
	all []pgx.TraceQueryStartData
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if httpapi.RequestID(ctx) != "" && strings.HasPrefix(q.SQL, "-- name:") ||
		strings.HasPrefix(q.SQL, "-- name: LeaseJob ") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, q)
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take returns what was collected, and begins anew.
func (s *statements) take() []pgx.TraceQueryStartData {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// plan is a node of EXPLAIN's answer.
type plan struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"` // per loop
	Removed  float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []plan
}

// explain runs a query and returns its plan. Nothing that it changes stays.
func explain(t testing.TB, conn *pgx.Conn, sql string, args []any) plan {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	var text []byte
	if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+sql, args...).Scan(&text); err != nil {
		t.Fatalf("explain %s: %v", sql, err)
	}
	var out []struct{ Plan plan }
	if err := json.Unmarshal(text, &out); err != nil || len(out) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	return out[0].Plan
}

// read adds, by table, the rows that a plan reads; scanned are the tables that it reads from beginning to end.
func (p plan) read(rows map[string]float64, scanned map[string]bool) {
	if p.Relation != "" {
		rows[p.Relation] += (p.Rows + p.Removed) * p.Loops
		if p.Type == "Seq Scan" {
			scanned[p.Relation] = true
		}
	}
	for _, child := range p.Plans {
		child.read(rows, scanned)
	}
}

// checkPlans explains queries, and returns how many. One may read at most so many rows of one table; the count of a search may read every workspace.
func checkPlans(t *testing.T, conn *pgx.Conn, queries []pgx.TraceQueryStartData, who, what string, most float64, search bool) int {
	t.Helper()
	for _, q := range queries {
		rows, scanned := map[string]float64{}, map[string]bool{}
		explain(t, conn, q.SQL, q.Args).read(rows, scanned)
		name, _, _ := strings.Cut(strings.TrimPrefix(q.SQL, "-- name: "), " ")
		if name == "ListWorkspaceRows" && strings.Contains(what, "sort=") && rows["workspaces"] > 1500 {
			t.Errorf("%s: %s reads %.0f workspaces, not in the order of an index", what, name, rows["workspaces"])
		}
		for _, table := range growing {
			if scanned[table] && !(search && name == "CountWorkspaceRows") {
				t.Errorf("%s %s: %s scans %s", who, what, name, table)
			}
			if rows[table] > most {
				t.Errorf("%s %s: %s reads %.0f rows of %s, want at most %.0f", who, what, name, rows[table], table, most)
			}
		}
	}
	return len(queries)
}

// answers reports whether a path of the API answers a user.
func answers(t *testing.T, s *coderdtest.Server, user, path string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL.String()+"/api/v2/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Coder-Session-Token", s.Token(user))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%s: %d %s, %v", path, answer.StatusCode, text, err)
		return false
	}
	return true
}

// growing are the tables that grow for years.
var growing = []string{
	"workspaces", "workspace_builds", "provisioner_jobs", "provisioner_job_logs", "workspace_resources", "workspace_agents", "workspace_apps", "audit_logs",
	"connection_logs",
}

// How many rows a query may read.
const (
	mostOwned   = 300    // user1 owns 50 workspaces with 250 builds, and 200 others are shared with user1
	mostPage    = 350    // pages have at most 100 rows
	mostCounted = 10_100 // lists of workspaces count all that match, logs up to 10 000
)

// planned are requests, how many rows of a table one of their queries may read, and whether they search.
var planned = []struct {
	who, path string
	most      float64
	search    bool
}{
	// The first page of the dashboard.
	{"user1", "users/me", 10, false},
	{"user1", "workspaces?q=owner:me&limit=100", mostOwned, false},
	{"user1", "templates", mostCounted, false}, // they count owners of workspaces
	{"user1", "organizations", 10, false},
	{"user1", "notifications/inbox?format=plaintext&read_status=all", 10, false},
	// Lists and single objects.
	{"user1", "workspaces?limit=100", mostOwned, false},
	{"user1", "workspaces?q=shared_with_user:me&limit=100", mostOwned, false},
	{"user1", "users/user1/workspace/NAME", 20, false},
	{"user1", "workspaces/ID", 20, false},
	{"user1", "workspaces/ID/builds", 20, false},
	{"user1", "workspacebuilds/BUILD/logs", mostPage, false},
	{"user1", "organizations/default/provisionerjobs?limit=100", mostOwned, false},
	{"olga", "workspaces?limit=25", mostCounted, false},
	{"olga", "workspaces?limit=100&offset=9900", mostCounted, false},
	{"olga", "workspaces?limit=100&offset=1000000000", mostCounted, false},
	{"olga", "workspaces?q=status:running&limit=25", mostCounted, true},
	{"olga", "workspaces?q=name:ws77&limit=25", mostCounted, true},
	{"olga", "workspaces?q=owner:user7&limit=25", mostCounted, true},
	{"olga", "workspaces?q=outdated:true&limit=25", mostCounted, true},
	{"olga", "workspaces?q=template:template3&limit=25", mostCounted, true},
	{"olga", "workspaces?sort=name&limit=100&offset=1000", mostCounted, false},
	{"olga", "workspaces?sort=created&limit=100", mostCounted, false},
	{"olga", "workspaces?sort=owner&limit=100", mostCounted, false},
	{"olga", "users?limit=25", mostPage, false},
	{"olga", "users?sort=seen&limit=25", mostPage, false},
	{"olga", "users?sort=created&limit=25&offset=100", mostPage, false},
	{"olga", "templates?sort=users", 2 * mostCounted, false}, // the order and the answer count owners of workspaces
	{"olga", "templates?sort=updated", mostCounted, false},
	{"olga", "organizations/default/provisionerjobs?limit=100", mostPage, false},
	{"olga", "organizations/default/provisionerjobs?status=pending&limit=100", 10, false},
	{"olga", "organizations/default/provisionerjobs?status=running,canceling&limit=1000", 10, false},
	{"olga", "organizations/default/provisionerjobs?limit=51&offset=200", mostPage, false},
	{"olga", "organizations/default/provisionerjobs?status=failed&limit=100", 10, false},
	{"olga", "organizations/default/provisionerjobs?initiator=user7&limit=100", mostPage, false},
	{"olga", "audit?limit=25", mostCounted, false},
	{"olga", "audit?q=username:user7&limit=25", mostPage, false},
	{"olga", "connectionlog?limit=25", mostCounted, false},
	{"olga", "connectionlog?q=username:user7&limit=25", mostPage, false},
}

// TestPlans seeds a database as it is after years and checks the plans of what the dashboard's first page requests, of lists, of logs and of
// the claim of a job: no query reads a table that grows from beginning to end, and each reads about as many rows as it shows.
func TestPlans(t *testing.T) {
	t.Parallel()
	seen := &statements{}
	var db *database.DB
	s := coderdtest.New(t, func(o *coderd.Options) {
		config := o.DB.Pool.Config()
		config.ConnConfig.Tracer = seen
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		db = &database.DB{Queries: dbsqlc.New(pool), Pool: pool}
		o.DB = db
	})
	s.Seed(coderdtest.Size{Users: 200, Workspaces: 10_000, Builds: 50_000, Lines: 50_000, Logged: 50_000})
	conn, err := s.DB.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var id, build, name string
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT w.id::text, w.latest_build_id::text, w.name FROM workspaces w JOIN users u ON u.id = w.owner_id WHERE u.username = 'user1' LIMIT 1").Scan(&id, &build, &name); err != nil {
		t.Fatal(err)
	}
	s.User("olga")
	check := func(who, what string, most float64, search bool) int {
		t.Helper()
		return checkPlans(t, conn.Conn(), seen.take(), who, what, most, search)
	}
	for _, tt := range planned {
		seen.take()
		tt.path = strings.NewReplacer("ID", id, "BUILD", build, "NAME", name).Replace(tt.path)
		if !answers(t, s, tt.who, tt.path) {
			continue
		}
		check(tt.who, tt.path, tt.most, tt.search)
	}

	seen.take()
	if answers(t, s, "olga", "deployment/overview") {
		checkOverview(t, conn.Conn(), seen.take())
	}

	// The claim of a job from a long queue of several users.
	var daemon uuid.UUID
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT id FROM provisioner_daemons WHERE name = 'seeded'").Scan(&daemon); err != nil {
		t.Fatal(err)
	}
	s.Exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, log_length)
		SELECT gen_random_uuid(), $1, u.id, 'workspace_build', f.id, '{"scope": "organization", "owner": ""}', 1
		FROM users u, (SELECT id FROM files LIMIT 1) f, generate_series(1, 1000) WHERE u.username IN ('user1', 'user2', 'user3')`, s.Org)
	s.Exec("ANALYZE provisioner_jobs")
	seen.take()
	job, err := db.LeaseJob(t.Context(), dbsqlc.LeaseJobParams{
		WorkerID: &daemon, LastOrganization: uuid.Max, Untagged: true,
		Tags: []byte(`{"scope": "organization", "owner": ""}`),
	})
	if err != nil || job.Status != "running" {
		t.Fatalf("claim %q: %v", job.Status, err)
	}
	if n := check("a provisioner", "claim", 100, false); n != 1 {
		t.Errorf("%d plans of claims were checked, want 1", n)
	}
}

// checkOverview checks the queries of the overview, which counts every workspace: none reads the builds and jobs of years, or a workspace twice.
func checkOverview(t *testing.T, conn *pgx.Conn, queries []pgx.TraceQueryStartData) {
	t.Helper()
	most := map[string]map[string]float64{
		"CountOverview":      {"workspaces": 10_000, "provisioner_jobs": 10},
		"ListCosts":          {"workspaces": 10_000, "workspace_builds": mostCounted, "provisioner_jobs": mostCounted},
		"CountAgentVersions": {"workspaces": 10_000, "workspace_agents": mostCounted},
		"CountBuildsByDay":   {"provisioner_jobs": 50_100}, // all are of this month
		"CountUsersByDay":    {"connection_logs": 50_000},
	}
	checked := 0
	for _, q := range queries {
		name, _, _ := strings.Cut(strings.TrimPrefix(q.SQL, "-- name: "), " ")
		if most[name] == nil {
			continue
		}
		checked++
		rows := map[string]float64{}
		explain(t, conn, q.SQL, q.Args).read(rows, map[string]bool{})
		for _, table := range growing {
			if rows[table] > most[name][table] {
				t.Errorf("the overview: %s reads %.0f rows of %s, want at most %.0f", name, rows[table], table, most[name][table])
			}
		}
	}
	if checked != len(most) {
		t.Errorf("%d plans of the overview were checked, want %d", checked, len(most))
	}
}

// TestPlansAreKept checks that PostgreSQL plans the queries of each build once for a connection and not for each set of ids: planning costs more
// than these queries. A plan that does not depend on the ids is chosen after five that do.
func TestPlansAreKept(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.Seed(coderdtest.Size{Users: 10, Workspaces: 2000, Builds: 10_000})
	var workspace, build, job, resource, agent uuid.UUID
	if err := s.DB.Pool.QueryRow(t.Context(), `SELECT w.id, b.id, b.job_id, r.id, a.id FROM workspaces w JOIN workspace_builds b ON b.id = w.latest_build_id
		JOIN workspace_resources r ON r.job_id = b.job_id JOIN workspace_agents a ON a.resource_id = r.id LIMIT 1`).Scan(&workspace, &build, &job, &resource, &agent); err != nil {
		t.Fatal(err)
	}
	conn, err := s.DB.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	q := dbsqlc.New(conn)
	queries := map[string]func(context.Context) error{
		"GetBuildOffer": func(ctx context.Context) error { _, err := q.GetBuildOffer(ctx, job); return err },
		"GetWorkspaceRow": func(ctx context.Context) error {
			_, err := q.GetWorkspaceRow(ctx, dbsqlc.GetWorkspaceRowParams{ID: workspace, ExtentAll: true})
			return err
		},
		"ListAgentsOfResources": func(ctx context.Context) error {
			_, err := q.ListAgentsOfResources(ctx, []uuid.UUID{resource})
			return err
		},
		"ListAppsOfAgents":     func(ctx context.Context) error { _, err := q.ListAppsOfAgents(ctx, []uuid.UUID{agent}); return err },
		"ListBuildRowsByID":    func(ctx context.Context) error { _, err := q.ListBuildRowsByID(ctx, []uuid.UUID{build}); return err },
		"ListJobMetadata":      func(ctx context.Context) error { _, err := q.ListJobMetadata(ctx, []uuid.UUID{job}); return err },
		"ListJobsByID":         func(ctx context.Context) error { _, err := q.ListJobsByID(ctx, []uuid.UUID{job}); return err },
		"ListPendingPositions": func(ctx context.Context) error { _, err := q.ListPendingPositions(ctx, []uuid.UUID{job}); return err },
		"ListPolicyFacts":      func(ctx context.Context) error { _, err := q.ListPolicyFacts(ctx, []uuid.UUID{workspace}); return err },
		"ListResources":        func(ctx context.Context) error { _, err := q.ListResources(ctx, []uuid.UUID{job}); return err },
	}
	for name, run := range queries {
		for range 10 {
			if err := run(t.Context()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		var kept int
		if err := conn.QueryRow(t.Context(), "SELECT generic_plans FROM pg_prepared_statements WHERE statement LIKE '-- name: ' || $1 || ' %'", name).Scan(&kept); err != nil || kept != 5 {
			t.Errorf("%s: %d of 10 runs used a kept plan, want 5: %v", name, kept, err)
		}
	}
}

// TestAdmissionNeedsNoStatistics checks that the admission of an agent reads few rows even before PostgreSQL has statistics of the tables, as in a
// deployment that has just grown: every agent is admitted twice when it returns to a restarted server.
func TestAdmissionNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.Seed(coderdtest.Size{Users: 10, Workspaces: 2000, Builds: 4000})
	conn, err := s.DB.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		"DELETE FROM pg_statistic WHERE starelid >= 16384", // below are PostgreSQL's own tables: FirstNormalObjectId
		"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid >= 16384",
		"SET LOCAL plan_cache_mode = force_generic_plan",
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var id uuid.UUID
	var byID, byToken string
	if err := tx.QueryRow(t.Context(), `SELECT id, 'NULL, ' || quote_literal(id) || ', true', quote_literal(token_hash) || ', NULL, true' FROM workspace_agents
		WHERE token_hash IS NOT NULL LIMIT 1`).Scan(&id, &byID, &byToken); err != nil {
		t.Fatal(err)
	}
	if _, err := dbsqlc.New(tx).GetAdmittedAgent(t.Context(), dbsqlc.GetAdmittedAgentParams{ID: &id}); err != nil && !database.IsNotFound(err) {
		t.Fatal(err)
	}
	var prepared string
	if err := tx.QueryRow(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement LIKE '-- name: GetAdmittedAgent %'").Scan(&prepared); err != nil {
		t.Fatal(err)
	}
	for what, args := range map[string]string{"by id": byID, "by token": byToken} {
		var text []byte
		if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE "+pgx.Identifier{prepared}.Sanitize()+"("+args+")", pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var out []struct{ Plan plan }
		if err := json.Unmarshal(text, &out); err != nil || len(out) != 1 {
			t.Fatalf("%s: %v", text, err)
		}
		rows := map[string]float64{}
		out[0].Plan.read(rows, map[string]bool{})
		for table, n := range rows {
			if n > 10 {
				t.Errorf("%s: the admission reads %.0f rows of %s", what, n, table)
			}
		}
		if rows["workspace_agents"] == 0 {
			t.Errorf("%s: the admission reads no agent: %s", what, text)
		}
	}
}
