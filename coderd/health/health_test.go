package health_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/health"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coderd/seal"
	"github.com/codermesh/codermesh/internal/buildinfo"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/tailnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	*health.Service
	db    *database.DB
	org   uuid.UUID
	url   *url.URL
	links []tailnet.RelayLink
	stun  bool
	wrap  func(http.Handler) http.Handler // what is between the server and the world
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		db: dbtest.New(t), links: []tailnet.RelayLink{{ID: 1, Code: "server", Connected: true}}, stun: true,
		wrap: func(h http.Handler) http.Handler { return h },
	}
	org, err := w.db.GetDefaultOrganization(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.org = org.ID
	sealer, err := seal.Load(t.Context(), w.db)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	mux := httpapi.NewMux(httpapi.Options{Logger: log, Authenticate: authenticate})
	mux.Handle("GET /healthz", rbac.Public, func(rw http.ResponseWriter, _ *http.Request) error {
		_, err := io.WriteString(rw, "OK")
		return err
	})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.wrap(mux).ServeHTTP(rw, r) }))
	t.Cleanup(server.Close)
	if w.url, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	w.Service = health.New(health.Options{
		DB: w.db, Logger: log, Sealer: sealer, AccessURL: w.url, Organization: w.org,
		Relays: func() ([]tailnet.RelayLink, bool) { return w.links, w.stun },
	})
	w.Routes(mux)
	w.daemon(t, "rack-1", buildinfo.Version())
	return w
}

// authenticate takes roles for tokens.
func authenticate(r *http.Request) (rbac.Actor, error) {
	switch token, _ := httpapi.Token(r); token.Reveal() {
	case "":
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
	case "member":
		return rbac.Actor{UserID: uuid.New()}, nil
	default:
		return rbac.Actor{UserID: uuid.New(), Roles: []string{token.Reveal()}}, nil
	}
}

func (w *world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := w.db.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) daemon(t *testing.T, name, version string) {
	t.Helper()
	w.exec(t, `INSERT INTO provisioner_daemons (id, organization_id, name, version, online) VALUES ($1, $2, $3, $4, true)`, uuid.New(), w.org, name, version)
}

// section makes a report and picks one section.
func (w *world) section(t *testing.T, name string) sdk.HealthSection {
	t.Helper()
	report := w.Report(t.Context(), true)
	for _, s := range report.Sections {
		if s.Name == name {
			if s.Code != "" && (s.Remedy == "" || s.Message == "") || s.Code == "" && s.Severity != sdk.HealthOK {
				t.Errorf("section %+v says nothing", s)
			}
			if s.Severity == sdk.HealthError == report.Healthy {
				t.Errorf("the report is healthy: %t with %+v", report.Healthy, s)
			}
			return s
		}
	}
	t.Fatalf("no section %s in %+v", name, report)
	return sdk.HealthSection{}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := sdk.New(w.url, "owner", sdk.Options{})
	defer client.HTTP().CloseIdleConnections()
	report, err := client.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !report.Healthy || len(report.Sections) != 5 {
		t.Errorf("report %+v", report)
	}
	for _, s := range report.Sections {
		if !s.Healthy || s.Label == "" || s.Message == "" || s.Code != "" && s.Code != health.CodeAccessURLLoopback {
			t.Errorf("section %+v", s)
		}
	}
	again, err := client.Health(t.Context())
	if err != nil || !again.CheckedAt.Equal(report.CheckedAt) {
		t.Errorf("a second report was made at %s, %v", again.CheckedAt, err)
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, section, code string
		severity            sdk.HealthSeverity
		spoil               func(*testing.T, *world)
	}{
		{"no relay", "relay", health.CodeRelayNotConnected, sdk.HealthError, func(_ *testing.T, w *world) { w.links[0].Connected = false }},
		{"no STUN", "relay", health.CodeRelayNoSTUN, sdk.HealthWarning, func(_ *testing.T, w *world) { w.stun = false }},
		{"no provisioner", "provisioners", health.CodeProvisionersNone, sdk.HealthError, func(t *testing.T, w *world) {
			w.exec(t, `UPDATE provisioner_daemons SET online = false`)
		}},
		{"an old provisioner", "provisioners", health.CodeProvisionersVersion, sdk.HealthWarning, func(t *testing.T, w *world) { w.daemon(t, "old", "v0.1.0") }},
		{"a job that waits", "provisioners", health.CodeJobsWaiting, sdk.HealthWarning, func(t *testing.T, w *world) {
			user, file := uuid.New(), uuid.New()
			w.exec(t, `INSERT INTO users (id, username, email) VALUES ($1, 'ann', 'ann@example.com')`, user)
			w.exec(t, `INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, 'x', 'application/x-tar', '', $2)`, file, user)
			w.exec(t, `INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, created_at)
				VALUES ($1, $2, $3, 'template_version_import', $4, now() - interval '1 hour')`, uuid.New(), w.org, user, file)
		}},
		{"no database", "database", health.CodeDatabaseUnreachable, sdk.HealthError, func(_ *testing.T, w *world) { w.db.Pool.Close() }},
		// As PostgreSQL answers when its disk is full: it reads, and refuses to write.
		{"a full disk", "database", health.CodeDatabaseNoWrite, sdk.HealthError, func(t *testing.T, w *world) {
			w.exec(t, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$`)
			w.exec(t, `CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON settings FOR EACH ROW EXECUTE FUNCTION full_disk()`)
		}},
		{"a proxy that knows no websockets", "websocket", health.CodeWebsocketRefused, sdk.HealthError, func(_ *testing.T, w *world) {
			w.wrap = func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					r.Header.Del("Upgrade")
					r.Header.Del("Connection")
					h.ServeHTTP(rw, r)
				})
			}
		}},
		{"another server's address", "access_url", health.CodeAccessURLOther, sdk.HealthError, func(_ *testing.T, w *world) {
			w.wrap = func(http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "<h1>It works!</h1>") })
			}
		}},
		{"another version's address", "access_url", health.CodeAccessURLOther, sdk.HealthError, func(_ *testing.T, w *world) {
			w.wrap = func(http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "OK") })
			}
		}},
		{"nobody at the address", "access_url", health.CodeAccessURLUnreachable, sdk.HealthError, func(_ *testing.T, w *world) { w.url.Host = "127.0.0.1:1" }},
		{"an address for this machine only", "access_url", health.CodeAccessURLLoopback, sdk.HealthWarning, func(*testing.T, *world) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.spoil(t, w)
			if got := w.section(t, c.section); got.Code != c.code || got.Severity != c.severity {
				t.Errorf("section %+v, want %s %s", got, c.severity, c.code)
			}
		})
	}
}

// TestWhoMayLook: the report is the owners', and the echo is for nobody but the server.
func TestWhoMayLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	get := func(path, token string) int {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, w.url.JoinPath(path).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Coder-Session-Token", token)
		r.Header.Set("Coder-Health-Check", "guess.guess")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	defer http.DefaultClient.CloseIdleConnections()
	for token, want := range map[secret.Token]int{"": 401, "member": 403, "template-admin": 403, "owner": 200} {
		if got := get("/api/v2/debug/health", token.Reveal()); got != want {
			t.Errorf("the report for %q: %d, want %d", token.Reveal(), got, want)
		}
	}
	if got := get("/api/v2/debug/ws", "owner"); got != http.StatusNotFound {
		t.Errorf("the echo with a forged token: %d", got)
	}
}
