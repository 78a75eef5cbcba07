package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/policy"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/coderd/scim"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/slim"
	"github.com/codermesh/codermesh/v2/coderd/sshkeys"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hosts"
)

// configuration is what the settings of a server amount to: checked values and open addresses. Its owner closes it.
type configuration struct {
	keys            *keyring.Ring
	keepKeys        func() error // as in serverOptions.keyring
	proxies         clientaddr.Proxies
	webhookNetworks []netip.Prefix
	trustedHosts    []string
	logins          []extauth.Provider
	listeners       *listeners
	metrics         *daemon.Metrics // nil without metrics
	profiles        *daemon.Private // nil without profiles
	source          database.Source
	accessURL       *url.URL
	replicaURL      *url.URL
	releaseMirror   *url.URL
	instances       *instanceidentity.Verifier
	stunServers     []string
	// sshAccess and wireGuardAccess are where users reach the gateways.
	sshAccess, wireGuardAccess string
	wildcard                   string
	transport                  httpapi.Transport
	oidc                       *signin.OIDC
	github                     *signin.GitHub
	claimSync                  idpsync.Initial
	notified                   notifications.Config
	presentation               users.Presentation
}

// checkArchivesDir returns a fault if the folder of archives cannot be opened. "" means that there is none.
func checkArchivesDir(dir string) error {
	if dir == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.Invalid, "--archives-dir cannot be %q: %w", dir, err).
			WithDetail("It must be a folder that the server's account may read.")
	}
	return root.Close()
}

// configure checks all settings and opens the addresses. It reports everything that is wrong at once; it skips only
// what follows from something wrong.
func (opts *serverOptions) configure(ctx context.Context, log *slog.Logger) (*configuration, error) {
	var c configuration
	var err error
	check := opts.settings.Check
	opts.checkBounds()
	stores := opts.postgres.url == "" || opts.provisioners > 0
	if opts.configDir != "" && (!stores || check(usable(opts.configDir))) {
		c.keys, c.keepKeys, err = opts.keyring(log)
		check(err)
	}
	c.source, err = opts.postgres.source(ctx)
	check(err)
	check(opts.pool.size(&c.source))
	c.proxies, err = clientaddr.ParseProxies(opts.proxyOrigins, opts.proxyHeaders)
	check(err)
	c.webhookNetworks, err = clientaddr.ParseNetworks("--webhook-allowed-networks", opts.notifications.networks)
	check(err)
	c.trustedHosts, err = hosts.Parse("--trusted-hosts", opts.trustedHosts)
	check(err)
	check(checkSetupCode(opts.setupCode))
	c.logins, err = extauth.ParseEnv(opts.settings.Environ(os.Environ()))
	check(err)
	c.replicaURL, err = parseReplicaURL(opts.replicaURL)
	check(err)
	c.releaseMirror, err = slim.ParseMirror(opts.releaseMirror)
	check(err)
	check(checkArchivesDir(opts.archivesDir))
	c.stunServers, err = mesh.ParseSTUNServers("--derp-server-stun-addresses", opts.stunServers)
	check(err)
	c.claimSync, err = opts.signIn.sync.initial(opts.signIn.oidc.GroupField)
	check(err)
	c.notified, err = opts.notifications.build()
	check(err)
	c.presentation, err = opts.presentation.build()
	check(err)
	if opts.metrics {
		c.metrics, err = daemon.ServeMetrics(opts.metricsAddress, log)
		check(err)
	}
	if opts.profiles {
		c.profiles, err = serveProfiles(ctx, opts.profilesAddress, log)
		check(err)
	}
	c.listeners, err = listen(opts, log)
	listening := check(err)
	if opts.accessURL != "" || listening {
		c.accessURL, err = c.listeners.accessURL(opts.accessURL)
		if check(err) {
			c.oidc, c.github, err = opts.signIn.providers(c.accessURL)
			check(err)
			c.transport, err = httpapi.ParseTransport(opts.tls.hstsAge(), opts.tls.hstsOptions, c.accessURL)
			check(err)
			c.sshAccess, err = opts.sshAccess(c.listeners, c.accessURL)
			check(err)
			_, c.wireGuardAccess, err = opts.wireGuard.Access(c.accessURL)
			check(err)
			c.wildcard, err = wildcardHost(opts.wildcardURL, c.accessURL)
			check(err)
			opts.instances.Audience = strings.TrimSuffix(c.accessURL.String(), "/")
			c.instances, err = instanceidentity.New(opts.instances)
			check(err)
		}
	}
	if err := opts.settings.Err(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &c, nil
}

// checkBounds checks the values that must lie in a range.
func (opts *serverOptions) checkBounds() {
	for _, one := range []struct {
		bad   bool
		flag  string
		value any
	}{
		{opts.provisionerGrace <= 0, "--provisioner-grace", opts.provisionerGrace},
		{opts.slowDatabase <= 0, "--health-check-threshold-database", opts.slowDatabase},
		{opts.stateRetention < 0, "--build-state-retention", opts.stateRetention},
		{opts.jobRetention < 0, "--job-retention", opts.jobRetention},
		{opts.drainDelay < 0, "--drain-delay", opts.drainDelay},
		{opts.provisioners < 0, "--provisioner-daemons", opts.provisioners},
	} {
		if one.bad {
			opts.settings.Check(fault.New(fault.Invalid, "%s cannot be %v", one.flag, one.value))
		}
	}
	if kept := time.Duration(opts.keyRetention); kept != 0 && kept < retention.MinKeys {
		opts.settings.Check(fault.New(fault.Invalid, "--api-keys-retention must be at least %s, or 0 to keep all",
			retention.MinKeys))
	}
	for flag, address := range map[string]string{
		"--ssh-address": opts.sshAddress, "--wireguard-address": opts.wireGuard.Address,
	} {
		if opts.presentation.browserOnly && address != "" {
			opts.settings.Check(fault.New(fault.Invalid, "--browser-only and %s cannot be combined", flag).
				WithDetail("The gateway would refuse all of its users."))
		}
	}
	opts.settings.Check(opts.lifetimes.Check())
	opts.settings.Check(opts.wireGuard.checkLifetime())
	if longest := time.Duration(opts.maxSSHKey); longest != 0 && longest < sshkeys.MinLifetime {
		opts.settings.Check(fault.New(fault.Invalid, "--max-ssh-key-lifetime must be at least %s, or 0 for no limit",
			sshkeys.MinLifetime))
	}
	if n := len(opts.scimToken); n > 0 && n < scim.MinToken {
		opts.settings.Check(fault.New(fault.Invalid, "--scim-auth-header must have at least %d characters",
			scim.MinToken).WithDetail("Generate it with: openssl rand -hex 32"))
	}
	if opts.quietHours != "" {
		_, err := policy.ParseQuietHours(opts.quietHours)
		opts.settings.Check(err)
	}
}

// registry returns where the server's metrics go, or nil.
func (c *configuration) registry() prometheus.Registerer {
	if c.metrics == nil {
		return nil
	}
	return c.metrics.Registry
}

func (c *configuration) close() error {
	var errs []error
	if c.listeners != nil {
		errs = append(errs, c.listeners.close())
	}
	if c.metrics != nil {
		errs = append(errs, c.metrics.Close())
	}
	if c.profiles != nil {
		errs = append(errs, c.profiles.Close())
	}
	return errors.Join(errs...)
}
