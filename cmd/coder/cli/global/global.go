// Package global holds the global flags, and builds from them on demand: streams, the configuration folder, a client of
// the server. It must not know the mesh.
package global

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/follow"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// Flags holds the global flags of one run, and what was built from them. Commands use them on one goroutine, so there
// are no locks.
type Flags struct {
	URL, Token, configDir     string
	Headers                   []string
	HeaderCommand             string
	Verbose, noVersionWarning bool
	RelayOnly, forceTTY       bool
	useKeyring                bool
	tlsCA, tlsCert, tlsKey    string
	io                        *tty.Streams // nil until made on demand
	made                      *sdk.Client  // nil until a command needs it
	LogFile                   io.Writer    // nil: log to standard error with --verbose

	// CompletionPatience is how long a user waits for the server after Tab: 300 ms, except in tests of what it answers.
	CompletionPatience time.Duration
}

// New returns flags with the given streams; nil means the process's own.
func New(streams *tty.Streams) *Flags {
	return &Flags{io: streams, CompletionPatience: 300 * time.Millisecond}
}

// Add adds the flags, which every command understands.
func (g *Flags) Add(f *pflag.FlagSet) {
	f.StringVar(&g.URL, "url", "", "URL of the server, such as https://coder.example.com")
	f.StringVar(&g.Token, "token", "", "session token instead of the stored one")
	f.StringVar(&g.configDir, "global-config", "",
		"configuration folder, which holds the session (default $XDG_CONFIG_HOME/coderv2)")
	f.StringArrayVar(&g.Headers, "header", nil, "HTTP header key=value for every request; may be repeated")
	f.StringVar(&g.HeaderCommand, "header-command", "",
		"command that prints additional headers, one key=value per line")
	f.BoolVarP(&g.Verbose, "verbose", "v", false, "log to standard error")
	f.BoolVar(&g.RelayOnly, "disable-direct-connections", false, "reach workspaces through the relay only")
	f.BoolVar(&g.noVersionWarning, "no-version-warning", false, "suppress the version mismatch warning")
	f.BoolVar(&g.forceTTY, "force-tty", false, "treat the standard streams as terminals")
	f.BoolVar(&g.useKeyring, "use-keyring", false,
		"keep the session in the system's keyring (macOS, Windows) instead of the configuration folder")
	for _, name := range []string{"no-feature-warning", "disable-network-telemetry"} {
		f.Bool(name, true, "has no effect: this program has no such warnings and sends no telemetry")
		f.Lookup(name).Hidden = true // editors and scripts pass them
	}
	f.StringVar(&g.tlsCA, "client-tls-ca-file", "", "PEM file with additional CA certificates to trust")
	f.StringVar(&g.tlsCert, "client-tls-cert-file", "", "PEM file with a client certificate")
	f.StringVar(&g.tlsKey, "client-tls-key-file", "", "PEM file with the client certificate's key")
	for flag, env := range map[string]string{"token": "CODER_SESSION_TOKEN", "global-config": "CODER_CONFIG_DIR"} {
		flags.SetEnv(f.Lookup(flag), env)
	}
}

// Streams returns the standard streams. They are made on demand, since they depend on --force-tty.
func (g *Flags) Streams() *tty.Streams {
	if g.io == nil {
		g.io = tty.Std(g.forceTTY)
	}
	return g.io
}

// Silence lets nothing be read from or written to the standard streams.
func (g *Flags) Silence() {
	g.io = &tty.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
}

// Logger logs to LogFile, to standard error with --verbose, or nowhere.
func (g *Flags) Logger() *slog.Logger {
	level := slog.LevelInfo
	if g.Verbose {
		level = slog.LevelDebug
	}
	to := g.LogFile
	if to == nil && g.Verbose {
		to = g.Streams().Err
	}
	if to == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level}))
}

// Config returns the configuration folder.
func (g *Flags) Config() (config.Dir, error) { return config.Open(g.configDir) }

// ServerURL returns the server's URL, from the flag or else the stored one.
func (g *Flags) ServerURL() (*url.URL, error) {
	text := g.URL
	if text == "" {
		dir, err := g.Config()
		if err != nil {
			return nil, err
		}
		if text, err = dir.Read(config.FileURL); err != nil {
			return nil, err
		}
	}
	if text == "" {
		return nil, exit.Try(fault.New(fault.Unauthenticated, "you are not signed in"), "coder login https://coder.example.com")
	}
	return ParseURL(text)
}

// Client returns a client with the session of the flags, or else the stored one. The first call reads the session.
func (g *Flags) Client(ctx context.Context) (*sdk.Client, error) {
	if g.made != nil {
		return g.made, nil
	}
	server, err := g.ServerURL()
	if err != nil {
		return nil, err
	}
	token, err := g.SessionToken()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, exit.Try(fault.New(fault.Unauthenticated, "you are not signed in to %s", server), "coder login %s",
			shell.Word(server.String()))
	}
	g.made, err = g.ClientFor(ctx, server, token)
	return g.made, err
}

// Use makes Client return client.
func (g *Flags) Use(client *sdk.Client) { g.made = client }

// ClientFor returns a client of the given server. An empty token means no session.
func (g *Flags) ClientFor(ctx context.Context, server *url.URL, token secret.Token) (*sdk.Client, error) {
	header, err := g.Header(ctx, server)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := g.TLSConfig()
	if err != nil {
		return nil, err
	}
	streams := g.Streams()
	return sdk.New(server, token, sdk.Options{
		Header: header, TLS: tlsConfig, Logger: g.Logger(), Waiting: func(w sdk.Wait) { sayWait(streams, w) },
	}), nil
}

// sayWait tells the user what requests wait for. That the server is merely slow is for a person at a terminal, not for
// a script's log.
func sayWait(s *tty.Streams, w sdk.Wait) {
	if !w.Slow || s.ErrTTY {
		fmt.Fprintf(s.Err, "%s Waiting up to %.0fs for it.\n", w.Reason, w.Limit.Seconds())
	}
}

// Follower returns a follower of the server's jobs.
func (g *Flags) Follower(client *sdk.Client) follow.Follower {
	return follow.Follower{Client: client, Streams: g.Streams(), Verbose: g.Verbose}
}

// Header returns the headers of --header and --header-command.
func (g *Flags) Header(ctx context.Context, server *url.URL) (http.Header, error) {
	header := http.Header{}
	lines := g.Headers
	if g.HeaderCommand != "" {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		shell := []string{"sh", "-c"}
		if runtime.GOOS == "windows" {
			shell = []string{"cmd.exe", "/c"}
		}
		run := exec.CommandContext(ctx, shell[0], shell[1], g.HeaderCommand)
		run.Env = append(os.Environ(), "CODER_URL="+server.String())
		run.Stderr = tty.Raw(g.Streams().Err)
		out, err := run.Output()
		if err != nil {
			return nil, fault.New(fault.Invalid, "the header command %q failed: %w", g.HeaderCommand, err)
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	for _, line := range lines {
		key, value, ok := strings.Cut(line, "=")
		if !ok || key == "" {
			return nil, fault.New(fault.Invalid, "the header %q is not key=value", line)
		}
		header.Add(key, value)
	}
	return header, nil
}

// TLSConfig returns the TLS configuration of the flags, or nil for the default.
func (g *Flags) TLSConfig() (*tls.Config, error) {
	if g.tlsCA == "" && g.tlsCert == "" && g.tlsKey == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if g.tlsCA != "" {
		roots, err := g.rootCAs()
		if err != nil {
			return nil, err
		}
		config.RootCAs = roots
	}
	if g.tlsCert != "" || g.tlsKey != "" {
		pair, err := tls.LoadX509KeyPair(g.tlsCert, g.tlsKey)
		if err != nil {
			return nil, fault.New(fault.Invalid, "cannot use the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// rootCAs returns the system's authorities plus those of --client-tls-ca-file, or nil without the flag.
func (g *Flags) rootCAs() (*x509.CertPool, error) {
	if g.tlsCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(g.tlsCA)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot read the CA certificates: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // the system has none
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fault.New(fault.Invalid, "%s contains no PEM certificate", g.tlsCA)
	}
	return roots, nil
}

// Confirm asks for confirmation of an action that cannot be undone or costs something. Without a terminal it requires
// yes.
func (g *Flags) Confirm(cmd *cobra.Command, yes bool, text string, def bool) error {
	if yes {
		return nil
	}
	s := g.Streams()
	if !s.InTTY {
		return exit.Try(fault.New(fault.Invalid, "%q needs confirmation, and standard input is not a terminal",
			cmd.CommandPath()),
			"Add --yes to the command.")
	}
	ok, err := s.Confirm(cmd.Context(), text, def)
	if err != nil {
		return err
	}
	if !ok {
		return &exit.Error{
			Code: exit.Failed, Err: exit.Try(fault.New(fault.Invalid, "canceled"), "%s --help", cmd.CommandPath()),
		}
	}
	return nil
}

// WarnVersion warns on a terminal if the server has another release: features may be missing on either side.
func (g *Flags) WarnVersion() {
	if g.made == nil || g.noVersionWarning || !g.Streams().ErrTTY {
		return
	}
	server, own := g.made.ServerVersion(), buildinfo.Version()
	if server == "" || Release(server) == Release(own) {
		return
	}
	fmt.Fprintf(g.Streams().Err, "note: the server is version %s, this program is %s; download the server's from %s/bin (--no-version-warning silences this)\n",
		server, own, g.made.URL())
}

// Release returns a version's first two numbers. Clients and servers with the same ones work together without a
// warning.
func Release(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// ParseURL parses a server's URL as users type it, with or without a scheme.
func ParseURL(text string) (*url.URL, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if host := strings.SplitN(text, "/", 2)[0]; strings.HasPrefix(host, "localhost") ||
			strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "[::1]") {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, exit.Try(fault.New(fault.Invalid, "%q is not the URL of a server", text), "coder login https://coder.example.com")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}
