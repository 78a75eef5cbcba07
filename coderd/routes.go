package coderd

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/metrics"
	"github.com/codermesh/codermesh/v2/coderd/notices"
	"github.com/codermesh/codermesh/v2/coderd/organizations"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/reference"
	"github.com/codermesh/codermesh/v2/internal/hosts"
	"github.com/codermesh/codermesh/v2/site"
)

// newRoutes registers the routes of all services, the metrics, and the dashboard.
func (s *Server) newRoutes(g *ground, sessions *httpapi.Sessions) error {
	opts := &s.opts
	s.Mux = httpapi.NewMux(httpapi.Options{
		Logger: opts.Logger, Authenticate: s.Users.Authenticate, Sessions: sessions, AccessURL: opts.AccessURL,
		Metrics: opts.Metrics, Tracer: opts.Tracer, Absent: s.absent, Record: audit.RecordGap(opts.DB),
		Keys: audit.KeysOf(opts.DB), StrictAudit: opts.StrictAudit, RequestsPerMinute: opts.RequestsPerMinute,
	})
	counts := metrics.New(opts.DB, s.Agents.Uses, opts.Logger)
	if opts.Metrics != nil {
		for _, c := range []prometheus.Collector{
			counts, s.Retention.Collector(), s.Jobs.Collector(), s.PubSub, metrics.NewMesh(s.meshNumbers),
		} {
			if err := opts.Metrics.Register(c); err != nil {
				return fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	inOrganizations := organizations.New(organizations.Options{
		DB: opts.DB, Users: s.Users, Logger: opts.Logger, Notifications: g.recorder,
	})
	for _, service := range []interface{ Routes(*httpapi.Mux) }{
		s.Users, inOrganizations, s.Groups, s.IDPSync, s.SignIn, s.SCIM,
		consents.New(consents.Options{DB: opts.DB, Accounts: s.Users}),
		s.Templates, s.Workspaces, s.Agents, s.Jobs, s.Keys, s.Mesh, s.Regions, s.Events, s.Apps,
		s.ExternalAuth, s.Secrets, s.SSHKeys, s.SSHCA, s.Identity, s.Devices, s.SSHGateway, s.WireGuard,
		s.Health, s.Audit, s.Notifications, s.Webhooks, counts,
	} {
		service.Routes(s.Mux)
	}
	s.foreignRoutes()
	reference.New(s.Mux.Routes).Routes(s.Mux)
	notices.Routes(s.Mux)
	s.Mux.Handle("GET /api/v2/deployment/config", rbac.Needs(rbac.Read, rbac.Deployment), s.deploymentConfig)
	s.Mux.Handle("GET /healthz", rbac.Public, s.health)
	// A workspace has no session when it fetches its agent.
	s.Mux.Handle("GET /bin/{name}", rbac.Public, s.binaries.ServeHTTP)
	s.Mux.Handle("GET /install.sh", rbac.Public, s.binaries.ServeScript)
	s.Mux.Handle("GET /install.ps1", rbac.Public, s.binaries.ServeScript)
	dashboard, err := site.New()
	if err != nil {
		return err
	}
	// Every other path is a page, and resolved by the page's own program.
	s.Mux.Handle("/", rbac.Public, httpapi.Serve(foreignDocs(s.Regions.Pages(dashboard))))
	return nil
}

// newHandler wraps the routes into what every request passes first. The last one added is the first to see a request.
func (s *Server) newHandler() {
	opts := &s.opts
	var pages http.Handler = s.Mux
	if opts.RedirectPages {
		pages = httpapi.RedirectPages(opts.AccessURL, opts.TLS != nil, pages)
	}
	s.Handler = opts.Transport.Handler(httpapi.BoundBodies(s.Apps.Handler(pages), 0))
	if opts.Challenges != nil {
		s.Handler = opts.Challenges(s.Handler)
	}
	s.Handler = hosts.New(hosts.Options{
		URLs: []*url.URL{opts.AccessURL, s.replicaURL()}, Wildcard: opts.WildcardHost, Trusted: opts.TrustedHosts,
		Certified: opts.Certified, Setting: "--trusted-hosts", Logger: opts.Logger,
	}).Handler(s.Handler)
	s.Handler = opts.Proxies.Handler(s.Handler)
	if s.local != nil {
		s.Handler = mesh.NodesOnly(s.local.Addr(), s.Handler)
	}
	s.http = &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
}

// meshNumbers returns this server's metrics of the mesh.
func (s *Server) meshNumbers() metrics.MeshNumbers {
	n := s.Mesh.Numbers()
	return metrics.MeshNumbers{
		Online: n.Online, Lost: n.Lost, RelayConnections: n.RelayConnections, Links: s.Mesh.ServerLinks(),
		SentBytes: n.Relay.SentBytes, ReceivedBytes: n.Relay.ReceivedBytes, ForwardedSent: n.Relay.ForwardedOut,
		ForwardedReceived: n.Relay.ForwardedIn,
	}
}
