// Package coderd assembles the server: it creates the services, connects them, and starts and stops them in order. It contains
// no logic of its own.
//
// Services are layered and know only the layers below them: docs/architecture.md draws the layers, and internal/layout
// enforces them.
//
// A service is given what it needs by New, in its Options: one that it may import as it is, one that it must not know as an
// interface of its own with the few methods that it calls. Only the mesh is completed afterwards, by Bind, because it asks what stands
// upon it: who an agent is, and who takes the jobs of a provisioner that lost its access. New is the one place where that is seen.
package coderd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/apps"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/consents"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/events"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/coderd/health"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/metrics"
	"github.com/codermesh/codermesh/v2/coderd/notices"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/organizations"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/provisioners"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/reference"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/replicas"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/coderd/scim"
	"github.com/codermesh/codermesh/v2/coderd/secrets"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/slim"
	"github.com/codermesh/codermesh/v2/coderd/sshca"
	"github.com/codermesh/codermesh/v2/coderd/sshgateway"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/coderd/webhooks"
	"github.com/codermesh/codermesh/v2/coderd/wggateway"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/hosts"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/site"
)

// Options are what a server is made of. Its owner opens the database and the listeners, and closes the database after Stop.
type Options struct {
	Logger *slog.Logger
	DB     *database.DB
	// AccessURL is how users and workspaces reach the server.
	AccessURL *url.URL
	// WildcardHost and NoPathApps are as in apps.Options.
	WildcardHost string
	NoPathApps   bool
	// Evaluate is as in templates.Options.
	Evaluate func(context.Context, templates.Question) (templates.Answer, error)
	// HTTP serves plain HTTP and TLS serves HTTPS. One may be nil.
	HTTP, TLS net.Listener
	// SSH serves stock SSH clients. Nil: there is no SSH gateway. SSHAccess is the host and port at which users reach it.
	SSH       net.Listener
	SSHAccess string
	// SSHNoAutostart keeps the gateway from starting stopped workspaces for their owners.
	SSHNoAutostart bool
	// MaxSSHKeyLifetime is as MaxLifetime in sshkeys.Options.
	MaxSSHKeyLifetime time.Duration
	// SSHKeyRegions is as Regions in sshkeys.Options.
	SSHKeyRegions []string
	// WireGuardAddress is the UDP address to serve devices with a WireGuard app on. Empty: there is no WireGuard gateway. WireGuardAccess is the host
	// and port at which devices reach it.
	WireGuardAddress, WireGuardAccess string
	// Resolvers returns the name servers for devices' questions about names outside of the mesh. Nil: those of the machine.
	Resolvers func() ([]string, error)
	// WireGuardNoDNSForward keeps the gateway from asking the server's resolvers about names outside of the mesh.
	WireGuardNoDNSForward bool
	// MaxDeviceLifetime is as MaxLifetime in devices.Options.
	MaxDeviceLifetime time.Duration
	// ReplicaURL is where the deployment's other servers reach this one, and no other. Nil means the address of HTTP, or of TLS without it.
	ReplicaURL *url.URL
	// DrainDelay is how long Stop keeps serving new connections while /healthz reports that the server is draining, so that a load balancer
	// notices. It applies only if the deployment has other servers.
	DrainDelay time.Duration
	// STUNAddress is as in mesh.Options.
	STUNAddress string
	// CacheDir keeps what can be made again: unpacked binaries.
	CacheDir string
	// StateDir keeps the journals of the built-in provisioners.
	StateDir string
	// SlowDatabase is as in health.Options.
	SlowDatabase time.Duration
	// Executors run the jobs of the built-in provisioners, one each. None: only external provisioners.
	Executors []job.Executor
	// Concerns are what the health report tells about the confinement of the built-in provisioners' templates, as sentences.
	Concerns []string
	// ProvisionerPSK lets external provisioners join. Empty: none by that way.
	ProvisionerPSK secret.Token
	// ProvisionerGrace is as Grace in jobs.Options.
	ProvisionerGrace time.Duration
	// StateRetention and JobRetention are as States and Jobs in retention.Options.
	StateRetention int
	JobRetention   time.Duration
	// AuditRetention and ConnectionRetention are as Audit and Connections in retention.Options.
	AuditRetention, ConnectionRetention time.Duration
	// BuildRetention, KeyRetention and AgentLogRetention are as Builds, Keys and AgentLogs in retention.Options.
	BuildRetention, KeyRetention, AgentLogRetention time.Duration
	// AuditStream receives the audit log as JSON lines while the server runs. Nil: nothing does.
	AuditStream io.Writer
	// States holds the keys that Terraform's states, and users' tokens of other services, are encrypted with. Required.
	States *keyring.Ring
	// Lifetimes are those of sessions and tokens. The zero value means the defaults.
	Lifetimes users.Lifetimes
	// SCIMToken is as Token in scim.Options.
	SCIMToken secret.Token
	// ExternalAuth are the services that users link accounts of.
	ExternalAuth []extauth.Provider
	// OIDC and GitHub are the identity providers that users sign in at; nil for none.
	OIDC   *signin.OIDC
	GitHub *signin.GitHub
	// ClaimSync is as Initial in idpsync.Options.
	ClaimSync idpsync.Initial
	// OnlyOwnersUsePasswords refuses the passwords of all others.
	OnlyOwnersUsePasswords bool
	// Mailer is as in signin.Options. Nil: the mail of Notifications, if there is one.
	Mailer signin.Mailer
	// Notifications says how users are notified. The zero value means in their inboxes only.
	Notifications notifications.Config
	// WebhookNetworks is as Allowed in webhooks.Options.
	WebhookNetworks []netip.Prefix
	// Proxies are the reverse proxies that may name the client's address.
	Proxies clientaddr.Proxies
	// Settings are what the operator has set, without the values of secrets, for owners to read.
	Settings []sdk.DeploymentOption
	// Presentation is as in users.Options. TermsOfServiceURL is as in signin.Options.
	Presentation      users.Presentation
	TermsOfServiceURL string
	// SetupCode is as in users.Options. Empty: one that all servers of the deployment derive.
	SetupCode secret.Token
	// TrustedHosts are names of the server besides those that hosts.New knows, and Certified is as in hosts.Options.
	TrustedHosts []string
	Certified    func(name string) bool
	// RequestsPerMinute is as in httpapi.Options.
	RequestsPerMinute int
	// Transport keeps browsers on HTTPS. RedirectPages sends browsers from other addresses to AccessURL.
	Transport     httpapi.Transport
	RedirectPages bool
	// Challenges answers certificate authorities before any other handler sees the request. Nil: none do.
	Challenges func(next http.Handler) http.Handler
	// QuietHours are those of users without their own: a daily schedule with one time. Empty means policy.DefaultQuietHours.
	QuietHours string
	// FixedQuietHours denies users their own quiet hours.
	FixedQuietHours bool
	// Announcer and Now are as in workspaces.Options. If Announcer is nil, announcements become notifications.
	Announcer workspaces.Announcer
	Now       func() time.Time
	// Metrics gets the server's metrics. Nil: nothing does.
	Metrics prometheus.Registerer
	// Tracer records requests and jobs. Nil records nothing.
	Tracer trace.TracerProvider
	// StrictAudit is as in httpapi.Options.
	StrictAudit bool
}

// Services are the parts of a server, each given what it needs by New. Programs reach them over HTTP and over the mesh; tests may also
// call one directly.
type Services struct {
	PubSub        *pubsub.Postgres
	Users         *users.Service
	ExternalAuth  *extauth.Service
	SignIn        *signin.Service
	IDPSync       *idpsync.Service
	Identity      *identity.Service
	Secrets       *secrets.Service
	SSHKeys       *sshkeys.Service
	Devices       *devices.Service
	SSHCA         *sshca.Service
	SSHGateway    *sshgateway.Gateway
	WireGuard     *wggateway.Gateway
	SCIM          *scim.Service
	Groups        *groups.Service
	Keys          *provisioners.Service
	Mesh          *mesh.Service
	Replicas      *replicas.Service
	Regions       *regions.Service
	Jobs          *jobs.Service
	Agents        *agents.Service
	Apps          *apps.Service
	Templates     *templates.Service
	Workspaces    *workspaces.Service
	Events        *events.Service
	Health        *health.Service
	Retention     *retention.Service
	Audit         *audit.Service
	Notifications *notifications.Service
	Webhooks      *webhooks.Service
	// Mux has every route of the API and the dashboard. Handler is what listeners serve: it also answers on the hosts of apps.
	Mux     *httpapi.Mux
	Handler http.Handler
}

// Server is one coderd. It goes through New, Start and Stop once.
type Server struct {
	Services
	opts Options
	log  *slog.Logger

	binaries *slim.Binaries
	// revocations end what sessions have open when they end.
	revocations *revocations
	activity    activity
	// Connections records who reaches which workspace.
	Connections *audit.Connections
	http        *http.Server
	builtIn     []*provisionerd.Participant

	failed   chan error // capacity 1
	running  sync.WaitGroup
	cancel   context.CancelFunc
	draining atomic.Bool // Stop was called
	others   atomic.Pointer[[]replicas.Server]
	// endSessions makes the recorder of connections store what is left. Nil before Start.
	endSessions context.CancelFunc
}

// New makes the services. It blocks for a few queries.
func New(ctx context.Context, opts Options) (_ *Server, err error) {
	if err := opts.States.Check(ctx, opts.DB); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, log: opts.Logger, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.abandon())
		}
	}()
	s.PubSub = pubsub.NewPostgres(opts.DB, opts.Logger)
	accessURL := opts.AccessURL.String()
	org, err := opts.DB.GetDefaultOrganization(ctx)
	if err != nil {
		return nil, fmt.Errorf("read default organization: %w", err)
	}
	quiet, err := policy.ParseQuietHours(cmp.Or(opts.QuietHours, policy.DefaultQuietHours))
	if err != nil {
		return nil, err
	}
	told := opts.Notifications.Recorder()
	signer, err := signed.Load(ctx, opts.DB)
	if err != nil {
		return nil, err
	}
	if s.opts.SetupCode == "" {
		s.opts.SetupCode = users.SetupCode(signer.Derive("setup code"))
	}
	s.Users = users.New(users.Options{Notifications: told, Signer: signer, DB: opts.DB, Logger: opts.Logger, Keys: opts.States, AccessURL: opts.AccessURL, OnlyOwnersUsePasswords: opts.OnlyOwnersUsePasswords, SyncedRoles: opts.ClaimSync.Site.Field != "", QuietHours: opts.QuietHours, CustomQuietHours: !opts.FixedQuietHours, Lifetimes: opts.Lifetimes, SetupCode: s.opts.SetupCode, Presentation: opts.Presentation})
	s.ExternalAuth = extauth.New(extauth.Options{DB: opts.DB, Logger: opts.Logger, Keys: opts.States, Signer: signer, AccessURL: opts.AccessURL, Providers: opts.ExternalAuth, SignIn: signin.Providers(opts.OIDC, opts.GitHub)})
	s.Secrets = secrets.New(secrets.Options{DB: opts.DB, Logger: opts.Logger, Keys: opts.States, Accounts: s.Users})
	s.SSHKeys = sshkeys.New(sshkeys.Options{DB: opts.DB, Logger: opts.Logger, Accounts: s.Users, MaxLifetime: opts.MaxSSHKeyLifetime, Regions: opts.SSHKeyRegions})
	s.SCIM = scim.New(scim.Options{DB: opts.DB, Logger: opts.Logger, Accounts: s.Users, AccessURL: opts.AccessURL, Token: opts.SCIMToken})
	s.IDPSync = idpsync.New(idpsync.Options{DB: opts.DB, Logger: opts.Logger, Initial: opts.ClaimSync})
	s.Notifications = notifications.New(notifications.Options{DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, AccessURL: opts.AccessURL, Accounts: s.Users, Recorder: told, Config: opts.Notifications})
	s.Webhooks = webhooks.New(webhooks.Options{
		DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, Keys: opts.States, AccessURL: opts.AccessURL, Notifications: told, Authenticate: s.Users.Authenticate,
		Allowed: opts.WebhookNetworks,
	})
	if opts.Mailer == nil && opts.Notifications.Mail != nil {
		opts.Mailer = notifications.Passcodes{DB: opts.DB, Mail: opts.Notifications.Mail}
	}
	if opts.Announcer == nil {
		opts.Announcer = announcer{told}
	}
	s.SignIn = signin.New(signin.Options{
		DB: opts.DB, Logger: opts.Logger, Accounts: s.Users, Tokens: s.ExternalAuth, IDPSync: s.IDPSync, Signer: signer, AccessURL: opts.AccessURL,
		OIDC: opts.OIDC, GitHub: opts.GitHub, OnlyOwnersUsePasswords: opts.OnlyOwnersUsePasswords, Mailer: opts.Mailer,
		TermsOfServiceURL: opts.TermsOfServiceURL,
	})
	s.Groups = groups.New(opts.DB, s.Users)
	s.Keys = provisioners.New(provisioners.Options{DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger})
	id := uuid.New()
	s.Mesh, err = mesh.New(mesh.Options{
		Logger: opts.Logger, ID: id, Accounts: s.Users, Keys: meshKeys{s.Keys}, Signer: signer, Organization: org.ID,
		ProvisionerPSK: opts.ProvisionerPSK, STUNAddress: opts.STUNAddress, LocalURL: localURL(opts.HTTP),
	})
	if err != nil {
		return nil, err
	}
	s.Replicas = replicas.New(replicas.Options{
		DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, Self: replicas.Server{ID: id, URL: s.replicaURL(), Version: buildinfo.Version()},
		LinkVersion: mesh.LinkVersion, MinLinkVersion: mesh.MinLinkVersion, StateKeys: opts.States.IDs(), Linked: s.Mesh.Linked, Changed: s.replicasChanged,
	})
	if err := s.Replicas.Check(ctx); err != nil {
		return nil, err
	}
	hostKeys, err := hostkeys.Load(ctx, opts.DB, opts.States, opts.Logger)
	if err != nil {
		return nil, err
	}
	s.Devices = s.newDevices(hostKeys, told)
	s.SSHCA = sshca.New(sshca.Options{DB: opts.DB, Logger: opts.Logger, Keys: hostKeys, Accounts: s.Users, Address: opts.SSHAccess})
	s.Identity = identity.New(identity.Options{DB: opts.DB, Logger: opts.Logger, Keys: opts.States, AccessURL: opts.AccessURL, Now: opts.Now})
	s.Regions = regions.New(regions.Options{
		ID: id, DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, AccessURL: opts.AccessURL, WildcardHost: opts.WildcardHost,
		FollowKeys: func() regions.Keys { return s.Mesh.FollowKeys() }, Changed: s.Mesh.SetRegions, Recheck: s.Mesh.RecheckProxies,
	})
	s.Jobs = jobs.New(jobs.Options{ID: id, DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, Grace: opts.ProvisionerGrace, Mesh: s.Mesh, Tracer: opts.Tracer, Outvoted: s.outvoted})
	s.Connections = audit.NewConnections(opts.DB, opts.Logger)
	s.Agents = agents.New(agents.Options{
		ServerID: id, DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, AccessURL: accessURL, ExternalAuth: s.ExternalAuth, Unlinked: s.Mesh.Unlinked,
		Accounts: agentOwners{s.Users, opts.DB}, Secrets: agentSecrets{s.Secrets}, Mesh: s.Mesh, Peers: meshDaemons{s.Mesh}.peer, Connections: s.Connections,
		Ports: appproxy.NewHosts(opts.AccessURL, opts.WildcardHost), Notifications: told, HostKeys: agentKeys{hostKeys, s.SSHCA}, Identity: s.Identity,
		HostnameSuffix: opts.Presentation.SSHConfig().HostnameSuffix,
	})
	s.Templates = templates.New(templates.Options{DB: opts.DB, Jobs: s.Jobs, Agents: s.Agents, ExternalAuth: s.ExternalAuth, AccessURL: accessURL, Evaluate: opts.Evaluate, Notifications: told})
	s.Workspaces = workspaces.New(workspaces.Options{
		DB: opts.DB, PubSub: s.PubSub, Jobs: s.Jobs, Agents: s.Agents, Users: s.Users, States: opts.States, ExternalAuth: s.ExternalAuth, Identity: s.Identity, Logger: opts.Logger, Forms: s.Templates,
		AccessURL: accessURL, QuietHours: quiet, CustomQuietHours: !opts.FixedQuietHours, Announcer: opts.Announcer, Now: opts.Now, Notifications: told,
	})
	s.Retention = retention.New(retention.Options{
		DB: opts.DB, Logger: opts.Logger, States: opts.StateRetention, Jobs: opts.JobRetention, Audit: opts.AuditRetention, Connections: opts.ConnectionRetention,
		Builds: opts.BuildRetention, Keys: opts.KeyRetention, AgentLogs: opts.AgentLogRetention,
	})
	if s.binaries, err = slim.New(filepath.Join(opts.CacheDir, "bin"), opts.AccessURL); err != nil {
		return nil, err
	}
	s.Apps = apps.New(apps.Options{
		DB: opts.DB, Logger: opts.Logger, Signer: signer, AccessURL: opts.AccessURL, WildcardHost: opts.WildcardHost, NoPaths: opts.NoPathApps,
		Accounts: s.Users, Agents: s.Agents, Mesh: s.Mesh, Connections: s.Connections, Regions: s.Regions,
	})
	s.SSHGateway, s.WireGuard = s.newSSHGateway(hostKeys, signer), s.newWireGuard(hostKeys)
	s.Mesh.Bind(meshAgents{s.Agents}, s.Jobs, meshRegions{s.Regions})
	s.Audit = audit.New(opts.DB)
	s.Health = health.New(health.Options{DB: opts.DB, Logger: opts.Logger, Signer: signer, AccessURL: opts.AccessURL, Organization: org.ID, ID: id, Relays: s.Mesh.Relays, Links: s.Mesh.ServerLinks, RegionID: mesh.RegionID, Concerns: opts.Concerns, SlowDatabase: opts.SlowDatabase})
	s.Events = events.New(events.Options{PubSub: s.PubSub, Logger: opts.Logger, Authenticate: s.Users.Authenticate})
	sessions := httpapi.NewSessions(opts.Logger, s.Users.Session)
	s.activity = activity{log: opts.Logger, sessions: s.Mesh.Sessions, note: s.Users.Used}
	s.revocations = newRevocations(opts.DB, opts.Logger, opts.MaxSSHKeyLifetime)
	s.revocations.recheck = []func(context.Context, uuid.UUID) error{
		sessions.Recheck,
		s.Mesh.Recheck,
		func(ctx context.Context, user uuid.UUID) error {
			s.Apps.Recheck(ctx, user)
			s.Regions.Recheck() // afterwards: their questions must not meet what is cached here
			return nil
		},
		func(_ context.Context, user uuid.UUID) error { s.Events.Recheck(user); return nil },
		s.SSHGateway.Recheck,
		s.WireGuard.Recheck,
	}
	// The database tells every server; this one need not wait for that.
	s.Users.OnRevoked(func(user uuid.UUID) { s.revocations.recheckSoon(user) })
	s.PubSub.Subscribe("users_revoked", s.revocations.announced)
	s.PubSub.Subscribe(devices.Channel, s.revocations.announced) // also of a device that was added: it may be the next to expire

	s.Mux = httpapi.NewMux(httpapi.Options{
		Logger: opts.Logger, Authenticate: s.Users.Authenticate, Sessions: sessions, AccessURL: opts.AccessURL,
		Metrics: opts.Metrics, Tracer: opts.Tracer, Absent: s.absent,
		Record: audit.RecordGap(opts.DB), Keys: audit.KeysOf(opts.DB), StrictAudit: opts.StrictAudit, RequestsPerMinute: opts.RequestsPerMinute,
	})
	counts := metrics.New(opts.DB, s.Agents.Uses, opts.Logger)
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(counts); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		if err := opts.Metrics.Register(s.Retention.Collector()); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		if err := opts.Metrics.Register(s.Jobs.Collector()); err != nil {
			return nil, fmt.Errorf("register metrics of jobs: %w", err)
		}
		if err := opts.Metrics.Register(s.PubSub); err != nil {
			return nil, fmt.Errorf("register metrics of announcements: %w", err)
		}
		if err := opts.Metrics.Register(metrics.NewMesh(s.meshNumbers)); err != nil {
			return nil, fmt.Errorf("register metrics of the mesh: %w", err)
		}
	}
	for _, service := range []interface{ Routes(*httpapi.Mux) }{s.Users, organizations.New(organizations.Options{DB: opts.DB, Users: s.Users, Logger: opts.Logger, Notifications: told}), s.Groups, s.IDPSync, s.SignIn, s.Templates, s.Workspaces, s.Agents, s.Jobs, s.Keys, s.Mesh, s.Regions, s.Events, s.Apps, s.ExternalAuth, s.Secrets, s.SSHKeys, s.SSHCA, s.Identity, s.Devices, s.SSHGateway, consents.New(consents.Options{DB: opts.DB, Accounts: s.Users}), s.SCIM, s.Health, s.Audit, s.Notifications, s.Webhooks, counts} {
		service.Routes(s.Mux)
	}
	s.foreignRoutes()
	reference.New(s.Mux.Routes).Routes(s.Mux)
	notices.Routes(s.Mux)
	s.Mux.Handle("GET /api/v2/deployment/config", rbac.Needs(rbac.Read, rbac.Deployment), s.deploymentConfig)
	s.Mux.Handle("GET /healthz", rbac.Public, s.health)
	s.Mux.Handle("GET /bin/{name}", rbac.Public, s.binaries.ServeHTTP) // a workspace has no session when it fetches its agent
	s.Mux.Handle("GET /install.sh", rbac.Public, s.binaries.ServeScript)
	s.Mux.Handle("GET /install.ps1", rbac.Public, s.binaries.ServeScript)
	dashboard, err := site.New()
	if err != nil {
		return nil, err
	}
	s.Mux.Handle("/", rbac.Public, httpapi.Serve(foreignDocs(s.Regions.Pages(dashboard)))) // every other path is a page, and resolved by the page's own program
	var pages http.Handler = s.Mux
	if opts.RedirectPages {
		pages = httpapi.RedirectPages(opts.AccessURL, opts.TLS != nil, pages)
	}
	s.Handler = opts.Transport.Handler(httpapi.BoundBodies(s.Apps.Handler(pages), 0))
	if opts.Challenges != nil {
		s.Handler = opts.Challenges(s.Handler)
	}
	s.Handler = hosts.New(hosts.Options{
		URLs: []*url.URL{opts.AccessURL, s.replicaURL()}, Wildcard: opts.WildcardHost, Trusted: opts.TrustedHosts, Certified: opts.Certified,
		Setting: "--trusted-hosts", Logger: opts.Logger,
	}).Handler(s.Handler)
	s.Handler = opts.Proxies.Handler(s.Handler)
	s.http = &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// abandon closes what a New that failed has opened.
func (s *Server) abandon() error {
	var err error
	if s.Mesh != nil {
		err = s.Mesh.Close()
	}
	if s.SignIn != nil {
		s.SignIn.Stop()
	}
	if s.Notifications != nil {
		s.Notifications.Stop()
	}
	if s.Webhooks != nil {
		s.Webhooks.Stop()
	}
	if s.ExternalAuth != nil {
		s.ExternalAuth.Close()
	}
	s.PubSub.Close()
	return err
}

// localURL is how this process reaches its own plain HTTP listener.
func localURL(l net.Listener) *url.URL {
	if l == nil {
		return nil
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	host := addr.Addr().Unmap()
	if host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return &url.URL{Scheme: "http", Host: netip.AddrPortFrom(host, addr.Port()).String()}
}

// replicaURL is where other servers reach this one.
func (s *Server) replicaURL() *url.URL {
	if s.opts.ReplicaURL != nil {
		return s.opts.ReplicaURL
	}
	for scheme, listener := range map[string]net.Listener{"http": s.opts.HTTP, "https": s.opts.TLS} {
		if listener == nil || scheme == "https" && s.opts.HTTP != nil {
			continue
		}
		addr := listener.Addr().(*net.TCPAddr).AddrPort()
		return &url.URL{Scheme: scheme, Host: netip.AddrPortFrom(reachable(addr.Addr().Unmap()), addr.Port()).String()}
	}
	return s.opts.AccessURL
}

// reachable returns an address of this host that others reach, if addr stands for all of them.
func reachable(addr netip.Addr) netip.Addr {
	if !addr.IsUnspecified() {
		return addr
	}
	own, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range own {
			prefix, err := netip.ParsePrefix(a.String())
			if ip := prefix.Addr().Unmap(); err == nil && ip.IsGlobalUnicast() && (ip.Is4() || addr.Is6()) {
				return ip
			}
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// meshNumbers returns this server's metrics of the mesh.
func (s *Server) meshNumbers() metrics.MeshNumbers {
	n := s.Mesh.Numbers()
	return metrics.MeshNumbers{
		Online: n.Online, Lost: n.Lost, RelayConnections: n.RelayConnections, Links: s.Mesh.ServerLinks(),
		SentBytes: n.Relay.SentBytes, ReceivedBytes: n.Relay.ReceivedBytes, ForwardedSent: n.Relay.ForwardedOut, ForwardedReceived: n.Relay.ForwardedIn,
	}
}

// replicasChanged links this server to the others.
func (s *Server) replicasChanged(others []replicas.Server) {
	list := make([]mesh.Replica, 0, len(others))
	for _, o := range others {
		list = append(list, mesh.Replica{ID: o.ID, URL: o.URL})
	}
	s.others.Store(&others)
	s.Mesh.SetReplicas(list)
}

// Start serves. It returns when requests are answered; built-in provisioners join in the background.
func (s *Server) Start(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.Jobs.Start(ctx); err != nil {
		return err
	}
	context.AfterFunc(ctx, s.Keys.OnDeleted(func(id uuid.UUID) { s.keyDeleted(ctx, id) }))
	s.running.Go(func() { s.revocations.run(ctx) })
	s.running.Go(func() { s.activity.run(ctx) })
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx)) // the last connections are recorded while the server stops
	s.endSessions = endSessions
	s.running.Go(func() { s.Connections.Run(sessions) })
	if s.opts.AuditStream != nil {
		follow, err := s.Audit.Follow(ctx, s.PubSub, s.opts.AuditStream, s.log)
		if err != nil {
			return err
		}
		s.running.Go(follow)
	}
	s.Agents.Start()
	s.Workspaces.Start()
	s.Retention.Start()
	s.Notifications.Start()
	s.Webhooks.Start()
	s.SignIn.Start()
	rpc := http.NewServeMux()
	rpc.Handle(s.Agents.RPCHandler(s.Mesh.CallingAgent))
	rpc.Handle(s.Jobs.RPCHandler(meshDaemons{s.Mesh}.calling))
	if err := s.Mesh.Start(rpc); err != nil {
		return err
	}
	// Before /healthz answers: a device begins a connection when the server is said to be there.
	if err := s.listenWireGuard(ctx); err != nil {
		return err
	}
	for _, listener := range []net.Listener{s.opts.HTTP, s.opts.TLS} {
		if listener == nil {
			continue
		}
		s.running.Go(func() {
			if err := s.http.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.fail(fmt.Errorf("serve %s: %w", listener.Addr(), err))
			}
		})
	}
	s.serveSSH()
	if err := s.Replicas.Start(ctx); err != nil {
		return err
	}
	s.Regions.Start(ctx)
	s.running.Go(func() {
		s.reencrypt(ctx)
	})
	s.running.Go(func() {
		if err := s.binaries.Prepare(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("cannot unpack binaries for workspaces", "err", err)
		}
	})
	return s.startBuiltIn()
}

// reencrypt brings everything under the first key, for as long as it takes.
func (s *Server) reencrypt(ctx context.Context) {
	retry := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for {
		_, err := s.opts.States.Rotate(ctx, s.opts.DB, s.log)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error("cannot encrypt with the first key, trying again", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// keyDeleted cuts the daemons of a deleted key, for as long as it takes.
func (s *Server) keyDeleted(ctx context.Context, id uuid.UUID) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := s.Mesh.KeyDeleted(ctx, id)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error("cannot disconnect provisioners of a deleted key, trying again", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // one is enough
	}
}

// Failed receives an error when the server cannot go on.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop ends the server. First it drains: load balancers are told, built-in provisioners finish their jobs until ctx ends, then interrupt them,
// and participants of the mesh move to the other servers. It waits for everything that Start began and works after a Start that failed.
func (s *Server) Stop(ctx context.Context) error {
	errs := []error{s.drain(ctx)}
	if s.cancel != nil {
		s.cancel()
	}
	s.Regions.Stop()
	s.Replicas.Stop()
	s.Events.Stop()
	s.Apps.Stop()
	s.SSHGateway.Stop()
	s.WireGuard.Stop()
	s.Agents.Stop()
	s.Workspaces.Stop()
	s.Retention.Stop()
	s.Notifications.Stop()
	s.Webhooks.Stop()
	s.Jobs.Stop()
	shut := s.shutHTTP(ctx)
	errs = append(errs, s.closeMesh())
	errs = append(errs, <-shut)
	s.SignIn.Stop() // no request can give it work any more
	if s.endSessions != nil {
		s.endSessions()
	}
	s.running.Wait()
	s.ExternalAuth.Close()
	s.PubSub.Close()
	return errors.Join(errs...)
}

// shutHTTP closes the listeners and then returns, before the mesh ends: agents that lose their connection try again at once, and a thousand
// of them would keep the server busy with refusals. Requests that are being answered get a moment, after which shut receives the result;
// websockets and the relay's connections are ended by their owners.
func (s *Server) shutHTTP(ctx context.Context) (shut <-chan error) {
	done, closed := make(chan error, 1), make(chan struct{})
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(closed) })) // called after the listeners were closed
	go func() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err := s.http.Shutdown(soon)
		if err != nil {
			err = s.http.Close()
		}
		done <- err
	}()
	<-closed
	return done
}

// meshDeadline bounds leaving the mesh, which waits for engines that are not ours.
const meshDeadline = 15 * time.Second

// closeMesh leaves the mesh, or says that it could not: the process then ends with what is left of it.
func (s *Server) closeMesh() error {
	closed := make(chan error, 1)
	go func() { closed <- s.Mesh.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(meshDeadline):
		return fmt.Errorf("leave the mesh: not done after %s", meshDeadline)
	}
}
