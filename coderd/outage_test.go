package coderd_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/coderd"
	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/provisionerd/echo"
	"github.com/codermesh/codermesh/provisionerd/job"
)

// outage is a way in which the database goes away and comes back.
type outage struct {
	url        string
	begin, end func()
}

// TestOutage checks what an outage of the database does to a server while a build runs and another waits: requests get 503 and a reason, what the
// provisioner reports meanwhile is stored once afterwards, and each build runs once.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T) outage{
		"connections cut": func(t *testing.T) outage {
			proxy := dbtest.NewProxy(t, dbtest.URL(t))
			return outage{proxy.URL, proxy.Cut, proxy.Release}
		},
		"connections held": func(t *testing.T) outage {
			proxy := dbtest.NewProxy(t, dbtest.URL(t))
			return outage{proxy.URL + "&statement_timeout=500ms", proxy.Hold, proxy.Release}
		},
		"failover": func(t *testing.T) outage {
			primary, standby := dbtest.NewPair(t)
			replicated := func() {
				coderdtest.Await(t, "the standby to be current", func(ctx context.Context) bool {
					return primary.Try(ctx, "SELECT 1 / count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()") == nil
				})
			}
			return outage{dbtest.PairURL(primary, standby), func() { replicated(); primary.Stop() }, func() { standby.Promote(t) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := prepare(t)
			db, err := database.Open(t.Context(), out.url, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(db.Close)
			exec := &echo.Executor{}
			t.Cleanup(func() {
				if err := exec.Close(); err != nil {
					t.Error(err)
				}
			})
			w := coderdtest.Start(t, func(o *coderd.Options) { o.DB, o.Executors = db, []job.Executor{exec} })
			release := filepath.Join(t.TempDir(), "release")
			if w.Archive, err = (echo.Script{"start": {{Log: "begin"}, {WaitFile: release}, {Log: "meanwhile"}}}).Archive(); err != nil {
				t.Fatal(err)
			}
			tom, ann := w.As("tom"), w.As("ann")
			version, err := tom.CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
				StorageMethod: sdk.StorageFile, FileID: w.File("tom"), Provisioner: sdk.ProvisionerTerraform,
			})
			if err != nil {
				t.Fatal(err)
			}
			coderdtest.Await(t, "the import", func(ctx context.Context) bool {
				v, err := tom.TemplateVersion(ctx, version.ID)
				return err == nil && v.Job.Status == sdk.JobSucceeded
			})
			template, err := tom.CreateTemplate(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: "process", VersionID: version.ID})
			if err != nil {
				t.Fatal(err)
			}
			lines := func(ctx context.Context, ws sdk.Workspace) (lines []string) {
				logs, err := ann.BuildLogs(ctx, ws.LatestBuild.ID, 0)
				if err != nil {
					return nil
				}
				for _, line := range logs {
					if line.Output == "begin" || line.Output == "meanwhile" {
						lines = append(lines, line.Output)
					}
				}
				return lines
			}
			one := w.Workspace("ann", "one", template.ID)
			coderdtest.Await(t, "the first build's log", func(ctx context.Context) bool { return len(lines(ctx, one)) == 1 })
			two := w.Workspace("ann", "two", template.ID) // waits for the only provisioner

			out.begin()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+"/api/v2/users/me", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Coder-Session-Token", "aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "database") {
				t.Errorf("meanwhile: %d, Retry-After %q, %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
			}
			// The build goes on: what it reports waits in the provisioner's journal.
			if err := os.WriteFile(release, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			out.end()
			for _, ws := range []sdk.Workspace{one, two} {
				coderdtest.Await(t, "the build of "+ws.Name, func(ctx context.Context) bool {
					now, err := ann.Workspace(ctx, ws.ID)
					return err == nil && now.LatestBuild.Job.Status == sdk.JobSucceeded
				})
				if diff := cmp.Diff([]string{"begin", "meanwhile"}, lines(t.Context(), ws)); diff != "" {
					t.Errorf("log of %s (-want +got):\n%s", ws.Name, diff)
				}
			}
			var jobs, epochs int
			err = db.Pool.QueryRow(t.Context(), `SELECT count(*), coalesce(sum(epoch), 0) FROM provisioner_jobs WHERE kind = 'workspace_build'`).Scan(&jobs, &epochs)
			if err != nil || jobs != 2 || epochs != 2 {
				t.Errorf("%d jobs ran %d times, %v; want each once", jobs, epochs, err)
			}
		})
	}
}
