package cli

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

	"github.com/codermesh/codermesh/internal/buildinfo"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/internal/tty"
)

// app is one run of the program: what the global flags said, and what was built from them on demand. Commands run on one
// goroutine, so it has no locks.
type app struct {
	url, token, configDir     string
	headers                   []string
	headerCommand             string
	verbose, noVersionWarning bool
	disableDirect, forceTTY   bool
	tlsCA, tlsCert, tlsKey    string
	io                        *tty.Streams // nil: the process's own, made on demand
	made                      *sdk.Client  // nil until a command needs it
	logFile                   io.Writer    // nil: the log goes to standard error, when it is wanted
}

// newApp makes a run with the given streams; nil means the process's own.
func newApp(streams *tty.Streams) *app {
	return &app{io: streams}
}

// globalFlags are understood by every command.
func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringVar(&a.url, "url", "", "server, for example https://coder.example.com")
	f.StringVar(&a.token, "token", "", "session token instead of the stored one")
	f.StringVar(&a.configDir, "global-config", "", "folder with the stored session (default $XDG_CONFIG_HOME/coderv2)")
	f.StringArrayVar(&a.headers, "header", nil, "HTTP header key=value for every request; may be repeated")
	f.StringVar(&a.headerCommand, "header-command", "", "command that prints more headers, one key=value per line")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log to standard error")
	f.BoolVar(&a.disableDirect, "disable-direct-connections", false, "reach workspaces through the relay only")
	f.BoolVar(&a.noVersionWarning, "no-version-warning", false, "suppress the version mismatch warning")
	f.BoolVar(&a.forceTTY, "force-tty", false, "treat the standard streams as terminals")
	f.StringVar(&a.tlsCA, "client-tls-ca-file", "", "PEM file with more CA certificates to trust")
	f.StringVar(&a.tlsCert, "client-tls-cert-file", "", "PEM file with a client certificate")
	f.StringVar(&a.tlsKey, "client-tls-key-file", "", "PEM file with its key")
	for flag, env := range map[string]string{"token": "CODER_SESSION_TOKEN", "global-config": "CODER_CONFIG_DIR"} {
		SetEnv(f.Lookup(flag), env)
	}
}

// streams are made late: --force-tty decides over them.
func (a *app) streams() *tty.Streams {
	if a.io == nil {
		a.io = tty.Std(a.forceTTY)
	}
	return a.io
}

// logger writes to the log file where there is one, to standard error with --verbose, and nowhere otherwise.
func (a *app) logger() *slog.Logger {
	level := slog.LevelInfo
	if a.verbose {
		level = slog.LevelDebug
	}
	to := a.logFile
	if to == nil && a.verbose {
		to = a.streams().Err
	}
	if to == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level}))
}

// config is where sessions are stored.
func (a *app) config() (configDir, error) { return openConfig(a.configDir) }

// serverURL is the server to talk to: the flag's, else the stored one.
func (a *app) serverURL() (*url.URL, error) {
	text := a.url
	if text == "" {
		dir, err := a.config()
		if err != nil {
			return nil, err
		}
		if text, err = dir.read(fileURL); err != nil {
			return nil, err
		}
	}
	if text == "" {
		return nil, Try(fault.New(fault.Unauthenticated, "you are not signed in"), "coder login https://coder.example.com")
	}
	return parseURL(text)
}

// client speaks to the server with the session of the flags, or the stored one. The first call reads the session.
func (a *app) client(ctx context.Context) (*sdk.Client, error) {
	if a.made != nil {
		return a.made, nil
	}
	server, err := a.serverURL()
	if err != nil {
		return nil, err
	}
	token, err := a.sessionToken()
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, Try(fault.New(fault.Unauthenticated, "you are not signed in to %s", server), "coder login %s", server)
	}
	a.made, err = a.clientFor(ctx, server, token)
	return a.made, err
}

// use makes client the answer of client.
func (a *app) use(client *sdk.Client) { a.made = client }

// sessionToken is the flag's, else the stored one; empty when nobody is signed in.
func (a *app) sessionToken() (secret.Token, error) {
	if a.token != "" {
		return secret.Token(strings.TrimSpace(a.token)), nil
	}
	dir, err := a.config()
	if err != nil {
		return "", err
	}
	token, err := dir.read(fileSession)
	return secret.Token(token), err
}

// clientFor speaks to the given server; an empty token means without a session.
func (a *app) clientFor(ctx context.Context, server *url.URL, token secret.Token) (*sdk.Client, error) {
	header, err := a.requestHeader(ctx, server)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	return sdk.New(server, token, sdk.Options{Header: header, TLS: tlsConfig, Logger: a.logger()}), nil
}

// follower shows how the server's jobs go on.
func (a *app) follower(client *sdk.Client) follower {
	return follower{client: client, streams: a.streams(), verbose: a.verbose}
}

// requestHeader is what --header and --header-command ask to send.
func (a *app) requestHeader(ctx context.Context, server *url.URL) (http.Header, error) {
	header := http.Header{}
	lines := a.headers
	if a.headerCommand != "" {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		shell := []string{"sh", "-c"}
		if runtime.GOOS == "windows" {
			shell = []string{"cmd.exe", "/c"}
		}
		run := exec.CommandContext(ctx, shell[0], shell[1], a.headerCommand)
		run.Env = append(os.Environ(), "CODER_URL="+server.String())
		run.Stderr = a.streams().Err
		out, err := run.Output()
		if err != nil {
			return nil, fault.New(fault.Invalid, "the header command %q failed: %w", a.headerCommand, err)
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

// tlsConfig is nil when the flags ask for nothing special.
func (a *app) tlsConfig() (*tls.Config, error) {
	if a.tlsCA == "" && a.tlsCert == "" && a.tlsKey == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.tlsCA != "" {
		roots, err := a.rootCAs()
		if err != nil {
			return nil, err
		}
		config.RootCAs = roots
	}
	if a.tlsCert != "" || a.tlsKey != "" {
		pair, err := tls.LoadX509KeyPair(a.tlsCert, a.tlsKey)
		if err != nil {
			return nil, fault.New(fault.Invalid, "the client certificate cannot be used: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// rootCAs are the system's authorities and those of --client-tls-ca-file; nil when the flag is not given.
func (a *app) rootCAs() (*x509.CertPool, error) {
	if a.tlsCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(a.tlsCA)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the authorities cannot be read: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // where the system has none, the file's are all
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fault.New(fault.Invalid, "%s holds no certificate in PEM form", a.tlsCA)
	}
	return roots, nil
}

// confirm asks before something that cannot be undone or costs something. Without a terminal it wants --yes.
func (a *app) confirm(cmd *cobra.Command, yes bool, text string, def bool) error {
	if yes {
		return nil
	}
	s := a.streams()
	if !s.InTTY {
		return Try(fault.New(fault.Invalid, "%q needs a confirmation, and there is no terminal to ask on", cmd.CommandPath()),
			"%s --yes", cmd.CommandPath())
	}
	ok, err := s.Confirm(cmd.Context(), text, def)
	if err != nil {
		return err
	}
	if !ok {
		return &ExitError{Code: exitFailed, Err: Try(fault.New(fault.Invalid, "canceled"), "%s --help", cmd.CommandPath())}
	}
	return nil
}

// warnVersion tells a person when the server is of another release: features may be missing on either side.
func (a *app) warnVersion() {
	if a.made == nil || a.noVersionWarning || !a.streams().ErrTTY {
		return
	}
	server, own := a.made.ServerVersion(), buildinfo.Version()
	if server == "" || minor(server) == minor(own) {
		return
	}
	fmt.Fprintf(a.streams().Err, "note: the server is %s, this program %s; %s/bin has the server's (--no-version-warning silences this)\n",
		server, own, a.made.URL())
}

// minor is a version's first two numbers.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// parseURL reads a server's URL as people type it.
func parseURL(text string) (*url.URL, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if host := strings.SplitN(text, "/", 2)[0]; strings.HasPrefix(host, "localhost") || strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "[::1]") {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, Try(fault.New(fault.Invalid, "%q is not the URL of a server", text), "coder login https://coder.example.com")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}
