// Package coderd assembles the server: it creates the services, connects them, and starts and stops them in order. It
// contains no logic of its own.
//
// Services are layered and know only the layers below them: docs/architecture.md draws the layers, and internal/layout
// enforces them.
//
// A service is given what it needs by New, in its Options: one that it may import as it is, one that it must not know
// as an interface of its own with the few methods that it calls. Only the mesh is completed afterwards, by Bind,
// because it asks what stands upon it: who an agent is, and who takes the jobs of a provisioner that lost its access.
// New is the one place where that is seen.
package coderd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/apps"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/events"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/coderd/health"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/provisioners"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/replicas"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/coderd/scim"
	"github.com/codermesh/codermesh/v2/coderd/secrets"
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
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
)

// Options are what a server is made of. Its owner opens the database and the listeners, and closes the database after
// Stop.
type Options struct {
	Logger *slog.Logger
	DB     *database.DB
	// AccessURL is how users and workspaces reach the server.
	AccessURL *url.URL
	// WildcardHost is the pattern of the apps' hosts: "*.apps.example.com", with a port if it is not the scheme's
	// default. Empty: none.
	WildcardHost string
	// NoPathApps refuses apps by path.
	NoPathApps bool
	// Evaluate answers a template's form, which may take as long as Terraform does. Nil: every form is unknown.
	Evaluate func(context.Context, templates.Question) (templates.Answer, error)
	// HTTP serves plain HTTP and TLS serves HTTPS. One may be nil.
	HTTP, TLS net.Listener
	// SSH serves stock SSH clients. Nil: there is no SSH gateway. SSHAccess is the host and port at which users reach
	// it.
	SSH       net.Listener
	SSHAccess string
	// SSHNoAutostart keeps the gateway from starting stopped workspaces for their owners.
	SSHNoAutostart bool
	// MaxSSHKeyLifetime is how long an SSH key of a user signs in after it was added. 0: no limit.
	MaxSSHKeyLifetime time.Duration
	// SSHKeyRegions are the region proxies at which a new SSH key may sign in, unless its user says otherwise.
	SSHKeyRegions []string
	// WireGuardAddress is the UDP address to serve devices with a WireGuard app on. Empty: there is no WireGuard
	// gateway. WireGuardAccess is the host and port at which devices reach it.
	WireGuardAddress, WireGuardAccess string
	// Resolvers returns the name servers for devices' questions about names outside of the mesh. Nil: those of the
	// machine.
	Resolvers func() ([]string, error)
	// WireGuardNoDNSForward keeps the gateway from asking the server's resolvers about names outside of the mesh.
	WireGuardNoDNSForward bool
	// MaxDeviceLifetime is the longest time that a device may connect. 0 means devices.DefaultMaxLifetime.
	MaxDeviceLifetime time.Duration
	// ReplicaURL is where the deployment's other servers reach this one, and no other. Nil means the address of HTTP,
	// or of TLS without it.
	ReplicaURL *url.URL
	// DrainDelay is how long Stop keeps serving new connections while /healthz reports that the server is draining, so
	// that a load balancer notices. It applies only if the deployment has other servers.
	DrainDelay time.Duration
	// STUNAddress is the UDP address that answers STUN. Empty: mesh.DefaultSTUNAddress, or any free port if that is
	// taken. "off": none.
	STUNAddress string
	// STUNServers are further STUN servers for participants of the mesh, as host:port.
	STUNServers []string
	// RelayOnly keeps all participants of the mesh from direct paths: every packet travels through a relay.
	RelayOnly bool
	// BrowserOnly lets users reach workspaces through pages and apps only, and none of their own programs.
	BrowserOnly bool
	// CacheDir keeps what can be made again: unpacked binaries.
	CacheDir string
	// Instances verifies who machines of clouds are. Nil means that agents have tokens only.
	Instances *instanceidentity.Verifier
	// ArchivesDir is the folder of archives that workspaces may fetch. "" means that there is none.
	ArchivesDir string
	// ReleaseMirror has the slim programs that this one was built without. Nil: there is none.
	ReleaseMirror *url.URL
	// StateDir keeps the journals of the built-in provisioners.
	StateDir string
	// SlowDatabase is how long a round trip to the database may take before the health report warns. 0 means
	// health.DefaultSlowDatabase.
	SlowDatabase time.Duration
	// Executors run the jobs of the built-in provisioners, one each. None: only external provisioners.
	Executors []job.Executor
	// Concerns are what the health report tells about the confinement of the built-in provisioners' templates, as
	// sentences.
	Concerns []string
	// ProvisionerPSK lets external provisioners join. Empty: none by that way.
	ProvisionerPSK secret.Token
	// ProvisionerGrace is how long a job waits for its provisioner to come back. 0 means jobs.DefaultGrace.
	ProvisionerGrace time.Duration
	// Retention says how long old data is kept. The zero value keeps all.
	Retention retention.Limits
	// AuditStream receives the audit log as JSON lines while the server runs. Nil: nothing does.
	AuditStream io.Writer
	// States holds the keys that Terraform's states, and users' tokens of other services, are encrypted with. Required.
	States *keyring.Ring
	// Lifetimes are those of sessions and tokens. The zero value means the defaults.
	Lifetimes users.Lifetimes
	// SCIMToken is what the identity provider's SCIM client sends. Empty: no SCIM.
	SCIMToken secret.Token
	// ExternalAuth are the services that users link accounts of.
	ExternalAuth []extauth.Provider
	// OIDC and GitHub are the identity providers that users sign in at; nil for none.
	OIDC   *signin.OIDC
	GitHub *signin.GitHub
	// ClaimSync says which claims decide about organizations, groups and roles, until settings replace it. The zero
	// value syncs nothing.
	ClaimSync idpsync.Initial
	// OnlyOwnersUsePasswords refuses the passwords of all others.
	OnlyOwnersUsePasswords bool
	// Mailer sends one-time passcodes. Nil: the mail of Notifications does, if there is one; else users cannot reset
	// their passwords.
	Mailer signin.Mailer
	// Notifications says how users are notified. The zero value means in their inboxes only.
	Notifications notifications.Config
	// WebhookNetworks are networks that webhooks may be in although they are reserved for the server's host or network.
	WebhookNetworks []netip.Prefix
	// Proxies are the reverse proxies that may name the client's address.
	Proxies clientaddr.Proxies
	// Settings are what the operator has set, without the values of secrets, for owners to read.
	Settings []sdk.DeploymentOption
	// Presentation is what the operator tells users and their programs.
	Presentation users.Presentation
	// TermsOfServiceURL leads to terms that users accept on the sign-in page. Empty: none.
	TermsOfServiceURL string
	// SetupCode is what the sender of the first user must know. Empty: one that all servers of the deployment derive.
	SetupCode secret.Token
	// TrustedHosts are names of the server besides those that hosts.New knows.
	TrustedHosts []string
	// Certified reports whether the server holds a certificate for a name. Nil: for none.
	Certified func(name string) bool
	// RequestsPerMinute limits the requests to the API of each user and, without a session, of each address. 0: no
	// limit.
	RequestsPerMinute int
	// Transport keeps browsers on HTTPS. RedirectPages sends browsers from other addresses to AccessURL.
	Transport     httpapi.Transport
	RedirectPages bool
	// Challenges answers certificate authorities before any other handler sees the request. Nil: none do.
	Challenges func(next http.Handler) http.Handler
	// QuietHours are those of users without their own: a daily schedule with one time. Empty means
	// policy.DefaultQuietHours.
	QuietHours string
	// FixedQuietHours denies users their own quiet hours.
	FixedQuietHours bool
	// Announcer carries announcements of stops and deletions to users. Nil: they become notifications.
	Announcer workspaces.Announcer
	// Now is the clock of schedules and of identity tokens. Nil means time.Now.
	Now func() time.Time
	// Metrics gets the server's metrics. Nil: nothing does.
	Metrics prometheus.Registerer
	// Tracer records requests and jobs. Nil records nothing.
	Tracer trace.TracerProvider
	// StrictAudit fails requests that changed something without a row in the audit log. It is for tests: a server
	// records and counts them.
	StrictAudit bool
}

// Services are the parts of a server, each given what it needs by New. Programs reach them over HTTP and over the mesh;
// tests may also call one directly.
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
	// Mux has every route of the API and the dashboard. Handler is what listeners serve: it also answers on the hosts
	// of apps.
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
	local       net.Listener // for the nodes of this process; nil if HTTP is not
	builtIn     []*provisionerd.Participant

	failed   chan error // capacity 1
	running  sync.WaitGroup
	cancel   context.CancelFunc
	draining atomic.Bool // Stop was called
	others   atomic.Pointer[[]replicas.Server]
	// endSessions makes the recorder of connections store what is left. Nil before Start.
	endSessions context.CancelFunc
}

// New makes the services, from the ground up. It blocks for a few queries.
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
	g, err := s.ground(ctx)
	if err != nil {
		return nil, err
	}
	s.newAccounts(g)
	if err := s.newMesh(ctx, g); err != nil {
		return nil, err
	}
	if err := s.newWorkspaces(g); err != nil {
		return nil, err
	}
	s.SSHGateway, s.WireGuard = s.newSSHGateway(g.hostKeys, g.signer), s.newWireGuard(g.hostKeys, g.signer)
	s.Mesh.Bind(meshAgents{s.reachable()}, s.Jobs, meshRegions{s.Regions})
	s.newWatchers(g)
	sessions := httpapi.NewSessions(opts.Logger, s.Users.Session)
	s.followRevocations(sessions)
	if err := s.newRoutes(g, sessions); err != nil {
		return nil, err
	}
	s.newHandler()
	return s, nil
}

// abandon closes what a New that failed has opened.
func (s *Server) abandon() error {
	var err error
	if s.Mesh != nil {
		err = s.Mesh.Close()
	}
	if s.local != nil {
		err = errors.Join(err, s.local.Close())
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
