package coderd_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
)

// outage is a way in which the database goes away and comes back.
type outage struct {
	url        string
	begin, end func()
}

var outages = map[string]func(*testing.T) outage{
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
			testwait.Until(t, "the standby is current", func() error {
				return primary.Try(t.Context(), "SELECT 1 / count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()")
			})
		}
		return outage{dbtest.PairURL(primary, standby), func() { replicated(); primary.Stop() }, func() { standby.Promote(t) }}
	},
}

// TestOutage checks what an outage of the database does to a server while a build runs and another waits: requests get 503 and a reason, what the
// provisioner reports meanwhile is stored once afterwards, and each build runs once.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, prepare := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := prepare(t)
			w := serveOn(t, out.url)
			template := w.importTemplate(t)
			one := w.Workspace("ann", "one", template)
			testwait.Until(t, "the first build's log", w.logIs(one, "begin"))
			two := w.Workspace("ann", "two", template) // waits for the only provisioner

			out.begin()
			w.refuses(t)
			// The build goes on: what it reports waits in the provisioner's journal.
			if err := os.WriteFile(w.release, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			out.end()
			for _, ws := range []sdk.Workspace{one, two} {
				testwait.Until(t, "the build of "+ws.Name, w.succeeded(ws))
				if err := w.logIs(ws, "begin", "meanwhile")(); err != nil {
					t.Errorf("log of %s: %v", ws.Name, err)
				}
			}
			var jobs, epochs int
			err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*), coalesce(sum(epoch), 0) FROM provisioner_jobs WHERE kind = 'workspace_build'`).Scan(&jobs, &epochs)
			if err != nil || jobs != 2 || epochs != 2 {
				t.Errorf("%d jobs ran %d times, %v; want each once", jobs, epochs, err)
			}
		})
	}
}

// TestHealthDuringOutage checks that the health report is answered while the database is away, with what it said last, and attacks that: only a
// token that this server has lately seen to be allowed gets it.
func TestHealthDuringOutage(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%t", held), func(t *testing.T) {
			t.Parallel()
			proxy := dbtest.NewProxy(t, dbtest.URL(t)) // with the usual timeouts
			out := outage{proxy.URL, proxy.Cut, proxy.Release}
			if held {
				out.begin = proxy.Hold
			}
			w := serveOn(t, out.url)
			testwait.Until(t, "the provisioner", w.Counts(1, `SELECT count(*) FROM provisioner_daemons WHERE online`))
			health := func(client *sdk.Client, want fault.Code) sdk.HealthReport {
				t.Helper()
				report, err := client.Health(t.Context())
				if fault.CodeOf(err) != want {
					t.Errorf("health: got %v, want %q", err, want)
				}
				return report
			}
			// What is revoked belongs to another owner: soon after, the server forgets what it knows of a user whose rights
			// have changed.
			w.User("otto")
			w.Exec(`UPDATE users SET roles = '{owner}' WHERE username = 'otto'`)
			token := func(user string) (client *sdk.Client, id string) {
				t.Helper()
				created, err := w.As(user).CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{})
				if err != nil {
					t.Fatal(err)
				}
				key := secret.Token(created.Key)
				id, _, _ = strings.Cut(created.Key, "-")
				return w.As(user).WithToken(key), id
			}
			unused, _ := token("olga")
			revoked, id := token("otto")
			health(revoked, "")
			if err := w.As("otto").DeleteAPIKey(t.Context(), sdk.Me, id); err != nil {
				t.Fatal(err)
			}
			health(revoked, fault.Unauthenticated)
			health(w.As("ann"), fault.Forbidden)
			before := health(w.As("olga"), "")

			out.begin()
			if !held {
				w.refuses(t)
			}
			var report sdk.HealthReport
			testwait.Until(t, "the report says that the database is away", func() error {
				report = health(w.As("olga"), "")
				return testwait.Unless(!report.Healthy, "it is healthy: %+v", report)
			})
			for _, client := range []*sdk.Client{unused, revoked, w.As("ann"), w.As("olga").WithToken("aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb")} {
				if !held { // they would wait for the database for 37 s, see TestSilentDatabase in httpapi
					health(client, fault.Unavailable)
				}
			}
			for _, s := range report.Sections {
				if s.Name == "database" && s.Code != fault.DatabaseUnreachable {
					t.Errorf("database: %+v", s)
				}
				if s.Name == "provisioners" && (s.Code != fault.DatabaseUnreachable || !strings.Contains(s.Message, "Provisioners connected: 1.") || len(s.Details) == 0) {
					t.Errorf("provisioners: %+v; want what was known", s)
				}
			}
			if len(report.Servers) != len(before.Servers) || len(report.Servers) == 0 || report.Servers[0].ID != before.Servers[0].ID {
				t.Errorf("servers %+v, want those that were known: %+v", report.Servers, before.Servers)
			}
			out.end()
		})
	}
}

// slowBuilds is a server with one provisioner, whose builds log a line, wait for a file, and log another line.
type slowBuilds struct {
	*coderdtest.Server
	release string // the file
}

// serveOn starts the server with the database at a URL.
func serveOn(t *testing.T, url string) *slowBuilds {
	t.Helper()
	db, err := database.Open(t.Context(), url, slog.New(slog.DiscardHandler))
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
	w := &slowBuilds{release: filepath.Join(t.TempDir(), "release")}
	w.Server = coderdtest.Start(t, func(o *coderd.Options) { o.DB, o.Executors = db, []job.Executor{exec} })
	if w.Archive, err = (echo.Script{"start": {{Log: "begin"}, {WaitFile: w.release}, {Log: "meanwhile"}}}).Archive(); err != nil {
		t.Fatal(err)
	}
	return w
}

// importTemplate lets the provisioner import the template of the builds.
func (w *slowBuilds) importTemplate(t *testing.T) uuid.UUID {
	t.Helper()
	tom := w.As("tom")
	version, err := tom.CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		StorageMethod: sdk.StorageFile, FileID: w.File("tom"), Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the import", func() error {
		v, err := tom.TemplateVersion(t.Context(), version.ID)
		return testwait.Unless(err == nil && v.Job.Status == sdk.JobSucceeded, "its job is %+v (%v)", v.Job, err)
	})
	template, err := tom.CreateTemplate(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: "process", VersionID: version.ID})
	if err != nil {
		t.Fatal(err)
	}
	return template.ID
}

// refuses checks that a request is answered with 503 and the reason.
func (w *slowBuilds) refuses(t *testing.T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+"/api/v2/users/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Coder-Session-Token", "aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "database") {
		t.Errorf("meanwhile: %d, Retry-After %q, %s", resp.StatusCode, resp.Header.Get("Retry-After"), body)
	}
}

// logIs checks which of their own lines a workspace's build has logged.
func (w *slowBuilds) logIs(ws sdk.Workspace, want ...string) func() error {
	return func() error {
		logs, err := w.As("ann").BuildLogs(w.T.Context(), ws.LatestBuild.ID, 0)
		if err != nil {
			return err
		}
		var got []string
		for _, line := range logs {
			if line.Output == "begin" || line.Output == "meanwhile" {
				got = append(got, line.Output)
			}
		}
		return testwait.Unless(slices.Equal(got, want), "logged %q, want %q", got, want)
	}
}

// succeeded checks that a workspace's build has succeeded.
func (w *slowBuilds) succeeded(ws sdk.Workspace) func() error {
	return func() error {
		now, err := w.As("ann").Workspace(w.T.Context(), ws.ID)
		return testwait.Unless(err == nil && now.LatestBuild.Job.Status == sdk.JobSucceeded, "its job is %+v (%v)", now.LatestBuild.Job, err)
	}
}
