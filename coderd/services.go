package coderd

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/apps"
	"github.com/codermesh/codermesh/v2/coderd/audit"
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
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/provisioners"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/replicas"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/coderd/scim"
	"github.com/codermesh/codermesh/v2/coderd/secrets"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/slim"
	"github.com/codermesh/codermesh/v2/coderd/sshca"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/coderd/webhooks"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/releasekey"
)

// ground is what several services stand on.
type ground struct {
	id           uuid.UUID // of this server
	organization uuid.UUID // the default one
	signer       *signed.Signer
	quiet        policy.QuietHours
	recorder     *notifications.Recorder
	hostKeys     *hostkeys.Keys // set by newMesh
}

// ground reads what the database holds of it.
func (s *Server) ground(ctx context.Context) (*ground, error) {
	s.PubSub = pubsub.NewPostgres(s.opts.DB, s.log)
	org, err := s.opts.DB.GetDefaultOrganization(ctx)
	if err != nil {
		return nil, fmt.Errorf("read default organization: %w", err)
	}
	quiet, err := policy.ParseQuietHours(cmp.Or(s.opts.QuietHours, policy.DefaultQuietHours))
	if err != nil {
		return nil, err
	}
	signer, err := signed.Load(ctx, s.opts.DB)
	if err != nil {
		return nil, err
	}
	return &ground{
		id: uuid.New(), organization: org.ID, signer: signer, quiet: quiet, recorder: s.opts.Notifications.Recorder(),
	}, nil
}

// newAccounts makes who people are, and what tells them.
func (s *Server) newAccounts(g *ground) {
	opts := &s.opts
	if opts.SetupCode == "" {
		opts.SetupCode = users.SetupCode(g.signer.Derive("setup code"))
	}
	opts.Presentation.BrowserOnly = opts.BrowserOnly
	s.Users = users.New(users.Options{
		DB: opts.DB, Logger: opts.Logger, Keys: opts.States, Signer: g.signer, AccessURL: opts.AccessURL,
		Notifications:          g.recorder,
		OnlyOwnersUsePasswords: opts.OnlyOwnersUsePasswords, SyncedRoles: opts.ClaimSync.Site.Field != "",
		QuietHours: opts.QuietHours, CustomQuietHours: !opts.FixedQuietHours, Lifetimes: opts.Lifetimes,
		SetupCode: opts.SetupCode, Presentation: opts.Presentation,
	})
	s.ExternalAuth = extauth.New(extauth.Options{
		DB: opts.DB, Logger: opts.Logger, Keys: opts.States, Signer: g.signer, AccessURL: opts.AccessURL,
		Providers: opts.ExternalAuth, SignIn: signin.Providers(opts.OIDC, opts.GitHub),
	})
	s.Secrets = secrets.New(secrets.Options{DB: opts.DB, Logger: opts.Logger, Keys: opts.States, Accounts: s.Users})
	s.SSHKeys = sshkeys.New(sshkeys.Options{
		DB: opts.DB, Logger: opts.Logger, Accounts: s.Users, MaxLifetime: opts.MaxSSHKeyLifetime,
		Regions: opts.SSHKeyRegions,
	})
	s.SCIM = scim.New(scim.Options{
		DB: opts.DB, Logger: opts.Logger, Accounts: s.Users, AccessURL: opts.AccessURL, Token: opts.SCIMToken,
	})
	s.IDPSync = idpsync.New(idpsync.Options{DB: opts.DB, Logger: opts.Logger, Initial: opts.ClaimSync})
	s.Notifications = notifications.New(notifications.Options{
		DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, AccessURL: opts.AccessURL, Accounts: s.Users,
		Recorder: g.recorder, Config: opts.Notifications,
	})
	s.Webhooks = webhooks.New(webhooks.Options{
		DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, Keys: opts.States, AccessURL: opts.AccessURL,
		Notifications: g.recorder, Authenticate: s.Users.Authenticate, Allowed: opts.WebhookNetworks,
	})
	if opts.Mailer == nil && opts.Notifications.Mail != nil {
		opts.Mailer = notifications.Passcodes{DB: opts.DB, Mail: opts.Notifications.Mail}
	}
	s.SignIn = signin.New(signin.Options{
		DB: opts.DB, Logger: opts.Logger, Accounts: s.Users, Tokens: s.ExternalAuth, IDPSync: s.IDPSync,
		Signer:    g.signer,
		AccessURL: opts.AccessURL, OIDC: opts.OIDC, GitHub: opts.GitHub,
		OnlyOwnersUsePasswords: opts.OnlyOwnersUsePasswords,
		Mailer:                 opts.Mailer, TermsOfServiceURL: opts.TermsOfServiceURL,
	})
	s.Groups = groups.New(opts.DB, s.Users)
	s.Keys = provisioners.New(provisioners.Options{DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger})
}

// newMesh makes what connects this server to agents, provisioners, regions and the deployment's other servers, and
// refuses to stand beside servers that it does not fit.
func (s *Server) newMesh(ctx context.Context, g *ground) (err error) {
	opts := &s.opts
	local, err := s.listenLocal()
	if err != nil {
		return err
	}
	s.Mesh, err = mesh.New(mesh.Options{
		Logger: opts.Logger, ID: g.id, Accounts: s.Users, Keys: meshKeys{s.Keys}, Signer: g.signer,
		Organization: g.organization, ProvisionerPSK: opts.ProvisionerPSK, STUNAddress: opts.STUNAddress,
		STUNServers: opts.STUNServers, RelayOnly: opts.RelayOnly, LocalURL: local,
		Refused: s.refusedByMesh,
	})
	if err != nil {
		return err
	}
	s.Replicas = replicas.New(replicas.Options{
		DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger,
		Self:        replicas.Server{ID: g.id, URL: s.replicaURL(), Version: buildinfo.Version()},
		LinkVersion: mesh.LinkVersion, MinLinkVersion: mesh.MinLinkVersion, StateKeys: opts.States.IDs(),
		Heard: s.Mesh.HeardServers, Changed: s.replicasChanged,
	})
	if err := s.Replicas.Check(ctx); err != nil {
		return err
	}
	if g.hostKeys, err = hostkeys.Load(ctx, opts.DB, opts.States, opts.Logger); err != nil {
		return err
	}
	s.SSHCA = sshca.New(sshca.Options{
		DB: opts.DB, Logger: opts.Logger, Keys: g.hostKeys, Accounts: s.Users, Address: opts.SSHAccess,
	})
	s.Identity = identity.New(identity.Options{
		DB: opts.DB, Logger: opts.Logger, Keys: opts.States, AccessURL: opts.AccessURL, Now: opts.Now,
	})
	s.Regions = regions.New(regions.Options{
		ID: g.id, DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, AccessURL: opts.AccessURL,
		WildcardHost: opts.WildcardHost, FollowKeys: func() regions.Keys { return s.Mesh.FollowKeys() },
		Alias:   g.hostKeys.Alias,
		Changed: s.Mesh.SetRegions, Recheck: s.Mesh.RecheckProxies,
	})
	s.Devices = s.newDevices(g.hostKeys, g.recorder)
	return nil
}

// newWorkspaces makes the queue of jobs, and what it builds.
func (s *Server) newWorkspaces(g *ground) (err error) {
	opts := &s.opts
	accessURL := opts.AccessURL.String()
	s.Jobs = jobs.New(jobs.Options{
		ID: g.id, DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, Grace: opts.ProvisionerGrace, Mesh: s.Mesh,
		Tracer: opts.Tracer, Outvoted: s.outvoted,
	})
	s.Connections = audit.NewConnections(opts.DB, opts.Logger)
	s.Agents = agents.New(agents.Options{
		ServerID: g.id, DB: opts.DB, PubSub: s.PubSub, Logger: opts.Logger, AccessURL: accessURL,
		ExternalAuth: s.ExternalAuth, Unlinked: s.Mesh.Unlinked, Accounts: agentOwners{s.Users, opts.DB},
		Secrets: agentSecrets{s.Secrets}, Mesh: s.Mesh, Peers: meshDaemons{s.Mesh}.peer, Connections: s.Connections,
		Ports: appproxy.NewHosts(opts.AccessURL, opts.WildcardHost), Notifications: g.recorder,
		HostKeys: agentKeys{g.hostKeys, s.SSHCA}, Identity: s.Identity,
		Instances:      opts.Instances,
		RelayOnly:      opts.RelayOnly,
		ArchivesDir:    opts.ArchivesDir,
		HostnameSuffix: opts.Presentation.SSHConfig().HostnameSuffix,
	})
	s.Templates = templates.New(templates.Options{
		DB: opts.DB, Jobs: s.Jobs, Agents: s.Agents, ExternalAuth: s.ExternalAuth, AccessURL: accessURL,
		Evaluate: opts.Evaluate, Notifications: g.recorder,
	})
	if opts.Announcer == nil {
		opts.Announcer = announcer{g.recorder}
	}
	s.Workspaces = workspaces.New(workspaces.Options{
		DB: opts.DB, PubSub: s.PubSub, Jobs: s.Jobs, Agents: s.Agents, Users: s.Users, States: opts.States,
		ExternalAuth: s.ExternalAuth, Identity: s.Identity, Logger: opts.Logger, Forms: s.Templates,
		AccessURL:  accessURL,
		QuietHours: g.quiet, CustomQuietHours: !opts.FixedQuietHours, Announcer: opts.Announcer, Now: opts.Now,
		Notifications: g.recorder,
	})
	s.Templates.HandlePlans(s.Workspaces.Plans())
	s.Retention = retention.New(retention.Options{DB: opts.DB, Logger: opts.Logger, Limits: opts.Retention})
	if s.binaries, err = slim.New(filepath.Join(opts.CacheDir, "bin"), opts.AccessURL); err != nil {
		return err
	}
	if opts.ReleaseMirror != nil {
		s.binaries.UseMirror(slim.Mirror{URL: opts.ReleaseMirror, Logger: opts.Logger, Key: releasekey.PEM()})
	}
	s.Apps = apps.New(apps.Options{
		DB: opts.DB, Logger: opts.Logger, Signer: g.signer, AccessURL: opts.AccessURL, WildcardHost: opts.WildcardHost,
		NoPaths: opts.NoPathApps, Accounts: s.Users, Agents: s.Agents, Mesh: s.Mesh, Connections: s.Connections,
		Regions: s.Regions,
	})
	return nil
}

// newWatchers makes what reports on the services.
func (s *Server) newWatchers(g *ground) {
	opts := &s.opts
	s.Audit = audit.New(opts.DB)
	s.Health = health.New(health.Options{
		DB: opts.DB, Logger: opts.Logger, Signer: g.signer, AccessURL: opts.AccessURL, Organization: g.organization,
		ID: g.id, Relays: s.Mesh.Relays, Links: s.Mesh.ServerLinks, RegionID: mesh.RegionID, Concerns: opts.Concerns,
		SlowDatabase: opts.SlowDatabase, Stopping: s.draining.Load,
	})
	s.Events = events.New(events.Options{PubSub: s.PubSub, Logger: opts.Logger, Authenticate: s.Users.Authenticate})
	s.activity = activity{log: opts.Logger, sessions: s.Mesh.Sessions, note: s.Users.Used}
}

// followRevocations has everything that holds a connection ask again whether its user may, as soon as that changes.
func (s *Server) followRevocations(sessions *httpapi.Sessions) {
	s.revocations = newRevocations(s.opts.DB, s.log, s.opts.MaxSSHKeyLifetime)
	s.revocations.recheck = []func(context.Context, uuid.UUID) error{
		sessions.Recheck,
		s.Mesh.Recheck,
		func(ctx context.Context, user uuid.UUID) error {
			s.Apps.Recheck(ctx, user)
			s.Regions.Recheck(user) // afterwards: their questions must not meet what is cached here
			return nil
		},
		func(_ context.Context, user uuid.UUID) error { s.Events.Recheck(user); return nil },
		s.SSHGateway.Recheck,
		s.WireGuard.Recheck,
	}
	// The database tells every server; this one need not wait for that.
	s.Users.OnRevoked(func(user uuid.UUID) { s.revocations.recheckSoon(user) })
	s.PubSub.Subscribe("users_revoked", s.revocations.announced)
	// Also of a device that was added: it may be the next to expire.
	s.PubSub.Subscribe(devices.Channel, s.revocations.announced)
}

// replicasChanged links this server to the others.
func (s *Server) replicasChanged(others []replicas.Server) {
	list := make([]mesh.Replica, 0, len(others))
	for _, o := range others {
		started := 1
		if o.Older {
			started = -1
		}
		list = append(list, mesh.Replica{ID: o.ID, URL: o.URL, Started: started})
	}
	s.others.Store(&others)
	s.Mesh.SetReplicas(list)
}
