package health_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/health"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server behind an intermediary, and its health service as the server would create it with other relays.
type world struct {
	*coderdtest.Server
	health *health.Service
	url    *url.URL // of the intermediary between the server and its clients
	links  []tailnet.RelayLink
	stun   bool
	wrap   func(http.Handler) http.Handler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		Server: coderdtest.New(t), links: []tailnet.RelayLink{{ID: 1, Code: "server", Connected: true}}, stun: true,
		wrap: func(h http.Handler) http.Handler { return h },
	}
	between := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.wrap(w.Handler).ServeHTTP(rw, r) }))
	t.Cleanup(between.Close)
	var err error
	if w.url, err = url.Parse(between.URL); err != nil {
		t.Fatal(err)
	}
	signer, err := signed.Load(t.Context(), w.DB)
	if err != nil {
		t.Fatal(err)
	}
	w.health = health.New(health.Options{
		DB: w.DB, Logger: slog.New(slog.DiscardHandler), Signer: signer, AccessURL: w.url, Organization: w.Org,
		Relays: func() ([]tailnet.RelayLink, bool) { return w.links, w.stun }, Links: func() []sdk.ServerLink { return nil }, ID: uuid.New(),
		Stopping:     func() bool { return false },
		SlowDatabase: time.Hour, // a busy machine is no finding
	})
	daemon(w.Server, "rack-1", buildinfo.Version())
	return w
}

func daemon(s *coderdtest.Server, name, version string) {
	s.T.Helper()
	s.Exec(`INSERT INTO provisioner_daemons (id, organization_id, name, version, online, server_id)
		SELECT $1, $2, $3, $4, true, (SELECT id FROM servers ORDER BY started_at LIMIT 1)`, uuid.New(), s.Org, name, version)
}

// proxy adds a region proxy that has connected to a server of its own, and is still connected or not. That server has another version, so
// that its silence is not an error.
func (w *world) proxy(name, version string, connected bool) {
	w.T.Helper()
	server := uuid.New()
	w.Exec(`INSERT INTO servers (id, url, version, link_version, min_link_version, beat_at) VALUES ($1, $2, 'v0.1.0', 1, 1, now() + interval '1 day')`, server, "http://127.0.0.1:1/"+name)
	w.Exec(`INSERT INTO workspace_proxies (id, name, token_hash, version, seen_at) VALUES ($1, $2, $3, $4, now())`, uuid.New(), name, []byte(name), version)
	if connected {
		w.Exec(`UPDATE workspace_proxies SET server_id = $1, connection_id = $2 WHERE name = $3`, server, uuid.New(), name)
	}
}

// section creates a report and returns one section.
func (w *world) section(t *testing.T, name string) sdk.HealthSection {
	t.Helper()
	report := w.health.Report(t.Context(), true)
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
	s := coderdtest.Start(t, func(o *coderd.Options) { o.STUNAddress, o.SlowDatabase = "127.0.0.1:0", time.Hour })
	daemon(s, "rack-1", buildinfo.Version())
	testwait.Until(t, "the relay", func() error {
		links, _ := s.Mesh.Relays()
		return testwait.Unless(len(links) == 1 && links[0].Connected, "links %+v", links)
	})
	client := s.As("olga")
	report, err := client.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !report.Healthy || len(report.Sections) != 7 || len(report.Servers) != 1 || !report.Servers[0].Reporter || !report.Servers[0].Answered {
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

// TestDismissedFinding: a finding that an owner accepts stays in the report, does not count for it, and others still do. Every check of the
// report can be dismissed by its name.
func TestDismissedFinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.links[0].Connected = false
	dismiss := func(settings sdk.HealthSettings) {
		t.Helper()
		body, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPut, "/api/v2/debug/health/settings", bytes.NewReader(body))
		r.Header.Set(sdk.SessionHeader, w.Token("olga"))
		answer := httptest.NewRecorder()
		w.Mux.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", body, answer.Code, answer.Body)
		}
	}
	before := w.health.Report(t.Context(), true)
	if before.Healthy {
		t.Fatalf("report %+v", before)
	}
	settings := sdk.HealthSettings{DismissedHealthchecks: []string{"DERP"}}
	dismiss(settings)
	report := w.health.Report(t.Context(), true)
	for _, section := range report.Sections {
		if section.Dismissed != (section.Name == "relay") || section.Dismissed && section.Code != health.CodeRelayNotConnected {
			t.Errorf("section %+v", section)
		}
	}
	if !report.Healthy {
		t.Errorf("report %+v", report)
	}
	settings.DismissedHealthchecks = nil
	for _, section := range report.Sections {
		if section.Name != "relay" {
			settings.DismissedHealthchecks = append(settings.DismissedHealthchecks, section.Name)
		}
	}
	dismiss(settings)
	if report := w.health.Report(t.Context(), true); report.Healthy || report.Severity != sdk.HealthError {
		t.Errorf("report %+v", report)
	}
}

// TestSlowDatabase checks that the operator decides how slow the database may be.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t, func(o *coderd.Options) { o.SlowDatabase = time.Nanosecond })
	report, err := s.As("olga").Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Sections, func(s sdk.HealthSection) bool {
		return s.Code == health.CodeDatabaseSlow && s.Severity == sdk.HealthWarning && s.Remedy != ""
	}) {
		t.Errorf("sections %+v", report.Sections)
	}
}

// answering puts something before the server that answers everything with a text.
func answering(text string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, text) })
	}
}

// unavailable makes /healthz answer that the server does not serve, and why.
func unavailable(why string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				h.ServeHTTP(rw, r)
				return
			}
			rw.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(rw, why)
		})
	}
}

// otherRelease has a server of another release, which is known, answer /healthz.
func otherRelease(w *world) {
	w.Exec(`INSERT INTO servers (id, url, version, link_version, min_link_version, beat_at) VALUES ($1, 'http://127.0.0.1:1', 'v2.31.9999+codermesh', 1, 1, now() + interval '1 day')`, uuid.New())
	w.wrap = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				h.ServeHTTP(rw, r)
				return
			}
			rw.Header().Set("X-Coder-Build-Version", "v2.31.9999+codermesh")
			io.WriteString(rw, "OK")
		})
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, section, code string
		severity            sdk.HealthSeverity
		spoil               func(*world)
	}{
		{"no relay", "relay", health.CodeRelayNotConnected, sdk.HealthError, func(w *world) { w.links[0].Connected = false }},
		{"no STUN", "relay", health.CodeRelayNoSTUN, sdk.HealthWarning, func(w *world) { w.stun = false }},
		{"no provisioner", "provisioners", health.CodeProvisionersNone, sdk.HealthError, func(w *world) {
			w.Exec(`UPDATE provisioner_daemons SET online = false`)
		}},
		{"an old provisioner", "provisioners", health.CodeProvisionersVersion, sdk.HealthWarning, func(w *world) { daemon(w.Server, "old", "v0.1.0") }},
		{"a job that waits", "provisioners", health.CodeJobsWaiting, sdk.HealthWarning, func(w *world) {
			w.Exec(`UPDATE provisioner_jobs SET created_at = now() - interval '1 hour' WHERE id = $1`, w.JobRow(sdk.JobTemplateImport, sdk.JobPending))
		}},
		{"a lost region", "workspace_proxy", health.CodeRegionUnreachable, sdk.HealthWarning, func(w *world) {
			w.proxy("eu", buildinfo.Version(), true)
			w.proxy("us", buildinfo.Version(), false)
		}},
		{"an old region", "workspace_proxy", health.CodeRegionVersion, sdk.HealthWarning, func(w *world) { w.proxy("eu", "v0.1.0", true) }},
		{"a region of a server that died", "workspace_proxy", health.CodeRegionUnreachable, sdk.HealthWarning, func(w *world) {
			w.proxy("eu", buildinfo.Version(), true)
			w.Exec(`UPDATE servers SET beat_at = now() - interval '1 minute' WHERE url = 'http://127.0.0.1:1/eu'`)
		}},
		{"a region in use", "workspace_proxy", "", sdk.HealthOK, func(w *world) { w.proxy("eu", buildinfo.Version(), true) }},
		{"a region that was never started", "workspace_proxy", "", sdk.HealthOK, func(w *world) {
			w.Exec(`INSERT INTO workspace_proxies (id, name, token_hash) VALUES ($1, 'eu', 'x')`, uuid.New())
		}},
		{"regions without a database", "workspace_proxy", health.CodeDatabaseUnreachable, sdk.HealthError, func(w *world) { w.DB.Pool.Close() }},
		{"no database", "database", health.CodeDatabaseUnreachable, sdk.HealthError, func(w *world) { w.DB.Pool.Close() }},
		// This is how PostgreSQL behaves when its disk is full: it reads, and refuses to write.
		{"a full disk", "database", health.CodeDatabaseNoWrite, sdk.HealthError, func(w *world) {
			w.Exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$`)
			w.Exec(`CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON settings FOR EACH ROW EXECUTE FUNCTION full_disk()`)
		}},
		{"a proxy that knows no websockets", "websocket", health.CodeWebsocketRefused, sdk.HealthError, func(w *world) {
			w.wrap = func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					r.Header.Del("Upgrade")
					r.Header.Del("Connection")
					h.ServeHTTP(rw, r)
				})
			}
		}},
		{"another server's address", "access_url", health.CodeAccessURLOther, sdk.HealthError, func(w *world) {
			w.wrap = answering("<h1>It works!</h1>")
		}},
		{"another version's address", "access_url", health.CodeAccessURLOther, sdk.HealthError, func(w *world) {
			w.wrap = answering("OK")
		}},
		{"the address leads to a server that is stopping", "access_url", health.CodeAccessURLNotServing, sdk.HealthWarning, func(w *world) {
			w.wrap = unavailable(health.Draining)
		}},
		{"the address leads to a server without links", "access_url", health.CodeAccessURLNotServing, sdk.HealthWarning, func(w *world) {
			w.wrap = unavailable(health.CutOff)
		}},
		{"a proxy has no server", "access_url", health.CodeAccessURLOther, sdk.HealthError, func(w *world) {
			w.wrap = unavailable("no server is available")
		}},
		{"the address leads to a server of another release", "access_url", health.CodeAccessURLLoopback, sdk.HealthWarning, otherRelease},
		{"nothing listens at the address", "access_url", health.CodeAccessURLUnreachable, sdk.HealthError, func(w *world) { w.url.Host = "127.0.0.1:1" }},
		{"an address for this machine only", "access_url", health.CodeAccessURLLoopback, sdk.HealthWarning, func(*world) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.spoil(w)
			if got := w.section(t, c.section); got.Code != c.code || got.Severity != c.severity {
				t.Errorf("section %+v, want %s %s", got, c.severity, c.code)
			}
		})
	}
}

// TestVersionsAreExplained checks that findings about versions say how they differ, also by commit alone, and what to do.
func TestVersionsAreExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := buildinfo.Version()
	for name, version := range map[string]string{"old": "v0.1.0", "new": "v99.0.0+codermesh", "same": own, "fix": own + ".g0123456789ab"} {
		daemon(w.Server, name, version)
		w.proxy(name, version, true)
	}
	for name, code := range map[string]string{"provisioners": health.CodeProvisionersVersion, "workspace_proxy": health.CodeRegionVersion} {
		section := w.section(t, name)
		if section.Code != code {
			t.Fatalf("section %+v", section)
		}
		for _, want := range []string{
			"this server's " + own, "old (v0.1.0, an earlier version)", "new (v99.0.0+codermesh, a later version)", "fix (" + own + ".g0123456789ab, another build of the same version)",
		} {
			if !strings.Contains(section.Message, want) {
				t.Errorf("%s: %q does not say %q", name, section.Message, want)
			}
		}
		for _, want := range []string{"Upgrade them to " + own + ".", "Upgrade this server to v99.0.0+codermesh.", "either install " + own + " there or " + own + ".g0123456789ab here."} {
			if !strings.Contains(section.Remedy, want) {
				t.Errorf("%s: the remedy %q does not say %q", name, section.Remedy, want)
			}
		}
		if others, ok := section.Details["other_versions"].(sdk.List[string]); !ok || len(others) != 3 {
			t.Errorf("%s: details %+v", name, section.Details)
		}
	}
}

// TestWhoMayLook checks that only owners can read the report, and that only the server can use the echo.
func TestWhoMayLook(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	get := func(path, user string) int {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL.JoinPath(path).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sdk.SessionHeader, s.Token(user))
		r.Header.Set("Coder-Health-Check", "guess.guess")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	defer http.DefaultClient.CloseIdleConnections()
	for user, want := range map[string]int{"": 401, "ann": 403, "tom": 403, "olga": 200} {
		if got := get("/api/v2/debug/health", user); got != want {
			t.Errorf("the report for %q: %d, want %d", user, got, want)
		}
	}
	if got := get("/api/v2/debug/ws", "olga"); got != http.StatusNotFound {
		t.Errorf("the echo with a forged token: %d", got)
	}
}
