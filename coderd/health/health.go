// Package health runs the server's self-checks: its database, its access URL, the relay, websockets, whether jobs make
// progress, the region proxies, and the other servers: it asks each about itself at its replica URL. Each finding has a
// stable code and a remedy. The checks change nothing except a row of their own, which shows whether the database can
// write. Owners can dismiss a check whose finding they accept.
package health

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/webdial"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Codes of findings. They are documented in docs/observability.md and do not change.
const (
	CodeDatabaseUnreachable  = fault.DatabaseUnreachable
	CodeDatabaseSlow         = "database_slow"
	CodeDatabaseNoWrite      = "database_cannot_write"
	CodeAccessURLUnreachable = "access_url_unreachable"
	CodeAccessURLOther       = "access_url_other_server"
	CodeAccessURLNotServing  = "access_url_not_serving"
	CodeAccessURLLoopback    = "access_url_loopback"
	CodeAccessURLPlain       = "access_url_not_encrypted"
	CodeRelayNotConnected    = "relay_not_connected"
	CodeRelayNoSTUN          = "relay_no_stun"
	CodeWebsocketRefused     = "websocket_refused"
	CodeProvisionersNone     = "provisioners_none"
	CodeProvisionersVersion  = "provisioners_version"
	CodeJobsWaiting          = "jobs_waiting"
	CodeTemplatesUnconfined  = "templates_not_confined"
	CodeRegionUnreachable    = "region_unreachable"
	CodeRegionVersion        = "region_version"
)

// What /healthz answers with the status 503, and why: the server is stopping, or other servers serve instead.
const (
	Draining = "draining"
	CutOff   = "cut off from the other servers"
)

const (
	// checkTimeout bounds one section.
	checkTimeout = 5 * time.Second
	// freshFor is how long a report is reused: the checks send requests to the server itself.
	freshFor = 10 * time.Second
)

// Options configures a Service. Every field is required except Client and Peers.
type Options struct {
	// ID identifies this server process.
	ID        uuid.UUID
	DB        *database.DB
	Logger    *slog.Logger
	Signer    *signed.Signer
	AccessURL *url.URL
	// Organization is the organization whose provisioners are checked.
	Organization uuid.UUID
	// Relays returns the relay links of this server's node, and whether a STUN address is announced.
	Relays func() (links []tailnet.RelayLink, stun bool)
	// Links returns what this server knows about its links to the others.
	Links func() []sdk.ServerLink
	// Stopping reports whether this server was told to stop.
	Stopping func() bool
	// RegionID is the id of the servers' relay region.
	RegionID int32
	// Concerns are sentences about what keeps the built-in provisioners from confining templates.
	Concerns []string
	// SlowDatabase is how long a round trip to the database may take before the report warns; 0 means
	// DefaultSlowDatabase.
	SlowDatabase time.Duration
	// Client reaches the access URL as all other clients do. If nil, a plain client is used.
	Client *http.Client
	// Peers reaches the replica URLs of the other servers. If nil, a plain client is used, as for links.
	Peers *http.Client
}

// Service creates reports. Safe for concurrent use.
type Service struct {
	opts Options

	mu     sync.Mutex // held while a report is created, so that only one is created at a time
	last   sdk.HealthReport
	listed []sdk.ServerHealth // of the report that is being created
	// What the database last said, for when it does not answer.
	known map[string]remembered // sections, by name
	rows  []dbsqlc.ListServersRow
	// dismissed are names of sections.
	dismissed []string
	now       time.Time // the database's time when it listed them
}

// remembered is a section that was made with the database.
type remembered struct {
	sdk.HealthSection
	at time.Time
}

// New returns the service.
func New(opts Options) *Service {
	opts.SlowDatabase = cmp.Or(opts.SlowDatabase, DefaultSlowDatabase)
	if opts.Client == nil {
		opts.Client = &http.Client{Transport: webdial.Upgrader(nil)}
	}
	if opts.Peers == nil {
		opts.Peers = &http.Client{
			Transport:     webdial.Upgrader(nil),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &Service{opts: opts, known: make(map[string]remembered)}
}

// Routes registers the report, and the echo with which the server checks that websockets get through.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/debug/health", rbac.Needs(rbac.Read, rbac.Deployment), s.get, httpapi.DuringOutage())
	mux.Handle("GET /api/v2/debug/health/settings", rbac.Needs(rbac.Read, rbac.Deployment), s.settings)
	mux.Handle("PUT /api/v2/debug/health/settings", rbac.Needs(rbac.Update, rbac.Deployment), s.setSettings,
		audit.On(audit.Write, audit.HealthSettings))
	mux.Handle("PATCH /api/v2/debug/health/settings", rbac.Needs(rbac.Update, rbac.Deployment), s.patchSettings,
		audit.On(audit.Write, audit.HealthSettings))
	mux.Handle("GET /api/v2/replicas", rbac.Needs(rbac.Read, rbac.Deployment), s.replicas, httpapi.DuringOutage())
	mux.Handle("GET /api/v2/debug/pprof/{profile}", rbac.Needs(rbac.Update, rbac.Deployment), s.profile,
		httpapi.DuringOutage())
	uncounted := httpapi.Uncounted("servers ask each other")
	mux.Handle("GET "+selfPath, rbac.Public, s.answer, uncounted) // requires a token from a server of this deployment
	mux.Handle("GET "+echoPath, rbac.Public, s.echo, uncounted)   // requires a token from a server of this deployment
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	force, err := httpapi.QueryBool(r, "force")
	if err != nil {
		return err
	}
	report := s.Report(r.Context(), force)
	s.addAwaited(r.Context(), &report)
	return httpapi.Write(w, http.StatusOK, report)
}

// Report returns the latest report, or a new one if that is too old or force is set. It blocks for the slowest section.
// While the database does not answer, sections that need it contain what it last said.
func (s *Service) Report(ctx context.Context, force bool) sdk.HealthReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !force && time.Since(s.last.CheckedAt) < freshFor {
		return s.last
	}
	servers := func(ctx context.Context) (section sdk.HealthSection) {
		section, s.listed = s.servers(ctx)
		return section
	}
	checks := []func(context.Context) sdk.HealthSection{s.database, s.accessURL, s.relay, s.websocket, s.provisioners, s.regions, servers}
	report := sdk.HealthReport{Severity: sdk.HealthOK, Sections: make([]sdk.HealthSection, len(checks))}
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() {
			// The request's cancellation must not interrupt the checks: the report is kept for other requests.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			defer cancel()
			report.Sections[i] = check(ctx)
		})
	}
	all.Wait()
	s.readDismissed(ctx)
	for i, section := range report.Sections {
		section = s.fromMemory(section)
		section.Dismissed = slices.Contains(s.dismissed, section.Name)
		report.Sections[i] = section
		if !section.Dismissed && worse(section.Severity, report.Severity) {
			report.Severity = section.Severity
		}
	}
	report.Servers = s.listed
	report.Healthy, report.CheckedAt = report.Severity != sdk.HealthError, time.Now()
	s.last = report
	return report
}

// fromMemory adds to a section that the database did not answer for what it said last.
func (s *Service) fromMemory(section sdk.HealthSection) sdk.HealthSection {
	if section.Code != CodeDatabaseUnreachable {
		s.known[section.Name] = remembered{section, time.Now()}
		return section
	}
	if last, ok := s.known[section.Name]; ok && len(section.Details) == 0 {
		section.Message += fmt.Sprintf(" At %s: %s", last.at.UTC().Format(time.DateTime+" UTC"), last.Message)
		section.Details = last.Details
	}
	return section
}

func worse(a, b sdk.HealthSeverity) bool {
	return rank(a) > rank(b)
}

func rank(s sdk.HealthSeverity) int {
	return slices.Index([]sdk.HealthSeverity{sdk.HealthOK, sdk.HealthWarning, sdk.HealthError}, s)
}

// good returns a section without a finding.
func good(name, label, message string, details map[string]any) sdk.HealthSection {
	return sdk.HealthSection{
		Name: name, Label: label, Healthy: true, Severity: sdk.HealthOK, Message: message, Details: details,
	}
}

// bad returns the section with a finding.
func bad(section sdk.HealthSection, severity sdk.HealthSeverity, code, message, remedy string) sdk.HealthSection {
	section.Severity, section.Healthy = severity, severity != sdk.HealthError
	section.Code, section.Message, section.Remedy = code, message, remedy
	return section
}
