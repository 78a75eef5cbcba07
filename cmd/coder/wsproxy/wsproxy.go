// Package wsproxy is the command that runs a region proxy. It is in both programs.
package wsproxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/internal/certs"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/hosts"
	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/region"
)

// options are the flags of `coder wsproxy server`.
type options struct {
	server, access string // URLs
	token          string
	http           string // address
	tls            daemon.TLS
	stun           string // address
	metrics        string // address
	wildcard       string // host
	ssh, sshAccess string // addresses
	wireGuard      daemon.WireGuard
	relayOnly      bool
	trusted        []string // hosts
	proxyOrigins   []string
	proxyHeaders   []string
	logs           daemon.Logs
}

// Command returns the command that joins those of package cli.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "wsproxy"}
	cmd.AddCommand(serverCmd())
	return cmd
}

func serverCmd() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a region proxy on this machine",
		Long: `Run a region proxy: a relay and a STUN responder for the nodes of the mesh that are near this machine. It connects to the server with a
token from "coder wsproxy create", and needs no database. Workspaces, users' machines and the server must reach it at --access-url. Packets that it
relays are encrypted between their ends.

It also opens workspaces' terminals, apps and ports in browsers, at paths below --access-url and at hosts below --wildcard-access-url. The server decides who
may open what, and knows every visit; --derp-only turns this off.

With --ssh-address, stock SSH clients reach workspaces through it, with the keys that their users have allowed at this region:
coder ssh-key regions KEY REGION.

With --wireguard-address, devices with a WireGuard app do, those that their users have added for this region: coder devices add NAME --region REGION.

The proxy connects again when the server was away, and keeps relaying meanwhile. When it stops, nodes move to another region at once.

Exit codes: 0 stopped by a signal, 1 the server refused the token, or the proxy could not start.`,
		Example: `  CODER_PROXY_SESSION_TOKEN=… coder wsproxy server --primary-access-url https://coder.example.com --access-url https://eu.example.com
  coder wsproxy server --tls-address :443 --tls-cert-file eu.crt --tls-key-file eu.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, opts) },
	}
	f := cmd.Flags()
	f.StringVar(&opts.server, "primary-access-url", "", "URL of the server")
	f.StringVar(&opts.token, "proxy-session-token", "",
		"token from coder wsproxy create (prefer the environment variable)")
	f.StringVar(&opts.access, "access-url", "", "URL at which nodes and the server reach this proxy")
	f.StringVar(&opts.http, "http-address", "127.0.0.1:3001",
		"address to serve plain HTTP on, for a reverse proxy that adds TLS; unused with --tls-address")
	opts.tls.Flags(f)
	f.StringVar(&opts.stun, "stun-address", ":3478", `UDP address to answer STUN on, at the access URL's host; "off" for none`)
	f.StringVar(&opts.wildcard, "wildcard-access-url", "",
		"wildcard host for apps at this proxy, such as *.eu.example.com; apps are below the access URL without it")
	f.StringVar(&opts.ssh, "ssh-address", "", "address to serve stock SSH clients on, such as 0.0.0.0:2222, so that they reach workspaces through this region (default none)")
	f.StringVar(&opts.sshAccess, "ssh-access-address", "", "host and port at which users reach --ssh-address (default the access URL's host and the port of --ssh-address)")
	opts.wireGuard.Flags(f)
	f.BoolVar(&opts.relayOnly, "derp-only", false, "relay traffic only; no apps or terminals")
	f.StringVar(&opts.metrics, "prometheus-address", "",
		"address to serve Prometheus metrics on, at /metrics; empty for none")
	f.StringSliceVar(&opts.trusted, "trusted-hosts", nil, "names besides the access URL's at which the proxy is reached, such as eu.internal or *.eu.internal; addresses need no entry")
	f.StringSliceVar(&opts.proxyOrigins, "proxy-trusted-origins", nil,
		"networks of reverse proxies, such as 10.0.0.0/8, that are trusted to name the visitor's address")
	f.StringSliceVar(&opts.proxyHeaders, "proxy-trusted-headers", nil, "headers in which trusted proxies name the visitor's address, the first present one counts (default X-Forwarded-For)")
	opts.logs.Flags(f)
	flags.SetEnvPrefix(cmd, "CODER_")
	return cli.Daemon(cmd)
}

func run(cmd *cobra.Command, opts options) (err error) {
	opts.logs.Verbose = cli.Verbose(cmd)
	log := opts.logs.Logger(os.Stderr)
	defer daemon.BoundMemory().Stop()
	if opts.token == "" {
		return fault.New(fault.Invalid, "A region proxy requires a token").
			WithDetail("Create one with coder wsproxy create NAME, and set CODER_PROXY_SESSION_TOKEN.")
	}
	server, err := parseURL("primary-access-url", opts.server)
	if err != nil {
		return err
	}
	access, err := parseURL("access-url", opts.access)
	if err != nil {
		return err
	}
	trusted, err := hosts.Parse("--trusted-hosts", opts.trusted)
	if err != nil {
		return err
	}
	proxies, err := clientaddr.ParseProxies(opts.proxyOrigins, opts.proxyHeaders)
	if err != nil {
		return err
	}
	common, err := cli.FindTLS(cmd)
	if err != nil {
		return err
	}
	listener, store, err := opts.listen(log)
	if err != nil {
		return err
	}
	if store != nil {
		watching, stop := context.WithCancel(cmd.Context())
		var watch sync.WaitGroup
		watch.Go(func() { store.Run(watching) })
		defer watch.Wait()
		defer stop()
	}
	if opts.stun == "off" {
		opts.stun = ""
	}
	proxy := region.Options{
		Logger: log, Server: server, Token: secret.Token(opts.token), TLS: common, URL: access, Listener: listener,
		STUNAddress: opts.stun, Apps: !opts.relayOnly,
		TrustedHosts: trusted, Proxies: proxies,
	}
	if store != nil {
		proxy.Certified = store.Has
	}
	if opts.wildcard != "" {
		if proxy.WildcardHost, err = appproxy.ParseWildcard(opts.wildcard); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	if opts.metrics != "" {
		metrics, refused := daemon.ServeMetrics(opts.metrics, log)
		if refused != nil {
			return errors.Join(refused, listener.Close())
		}
		defer func() {
			if failed := metrics.Close(); failed != nil {
				err = errors.Join(err, failed)
			}
		}()
		proxy.Metrics = metrics.Registry
	}
	if proxy.SSH, proxy.SSHAccess, err = opts.listenSSH(access); err != nil {
		return errors.Join(err, listener.Close())
	}
	if proxy.WireGuard, err = opts.gateway(access); err != nil {
		if proxy.SSH != nil {
			err = errors.Join(err, proxy.SSH.Close())
		}
		return errors.Join(err, listener.Close())
	}
	log.Info("region proxy started", "url", access.String(), "addr", listener.Addr().String())
	return region.Run(cmd.Context(), proxy)
}

// listen opens the proxy's address. The store of certificates is nil for plain HTTP.
func (o options) listen(log *slog.Logger) (net.Listener, *certs.Store, error) {
	if o.tls.Enabled() {
		return o.tls.Listen(log)
	}
	listener, err := net.Listen("tcp", o.http)
	if err != nil {
		return nil, nil, daemon.CannotListen("--http-address", o.http, err)
	}
	return listener, nil, nil
}

// listenSSH opens the address of the SSH gateway, and returns where users reach it. The listener is nil if there is
// none.
func (o options) listenSSH(accessURL *url.URL) (net.Listener, string, error) {
	access := o.sshAccess
	if o.ssh == "" {
		if access != "" {
			return nil, "", fault.New(fault.Invalid, "--ssh-access-address needs --ssh-address").
				WithDetail("Set --ssh-address to the address to serve SSH on, such as 0.0.0.0:2222.")
		}
		return nil, "", nil
	}
	if access != "" && region.CheckGatewayAddress(access) != nil {
		return nil, "", fault.New(fault.Invalid, "--ssh-access-address %q must be a host and a port", access).
			WithDetail("It looks like ssh.eu.example.com:22.")
	}
	listener, err := net.Listen("tcp", o.ssh)
	if err != nil {
		return nil, "", daemon.CannotListen("--ssh-address", o.ssh, err)
	}
	if access == "" {
		access = net.JoinHostPort(accessURL.Hostname(), strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return listener, access, nil
}

// gateway returns the WireGuard gateway, nil if there is none.
func (o options) gateway(accessURL *url.URL) (*region.WireGuard, error) {
	port, access, err := o.wireGuard.Access(accessURL)
	if err != nil || access == "" {
		return nil, err
	}
	if region.CheckGatewayAddress(access) != nil {
		return nil, fault.New(fault.Invalid, "--wireguard-access-address %q must be a host and a port", access).
			WithDetail("It looks like eu.example.com:51820.")
	}
	gateway := &region.WireGuard{Port: port, Access: access}
	if o.wireGuard.DNSForward {
		gateway.Resolvers = meshdns.SystemResolvers
	}
	return gateway, nil
}

func parseURL(flag, text string) (*url.URL, error) {
	if err := region.CheckURL(text); err != nil {
		return nil, fault.New(fault.Invalid, "--%s cannot be %q: it must be a URL like https://coder.example.com", flag, text)
	}
	return url.Parse(text)
}
