package cli

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// Additional commands of a program get from here what they need of the global flags. All of it is for a running
// command: its RunE.

type appKey struct{}

// appOf returns the flags of the run that a command belongs to.
func appOf(cmd *cobra.Command) *global.Flags { return cmd.Context().Value(appKey{}).(*global.Flags) }

// Streams returns where a command reads and writes.
func Streams(cmd *cobra.Command) *tty.Streams { return appOf(cmd).Streams() }

// Server describes how to reach the server, according to the global flags.
type Server struct {
	URL    *url.URL
	Token  secret.Token // of the session; empty without one
	Header http.Header  // headers of every request, without the token
	TLS    *tls.Config  // nil means the system's authorities
	// RelayOnly turns off direct paths.
	RelayOnly bool
}

// FindServer reads the flags and the stored session.
func FindServer(ctx context.Context, cmd *cobra.Command) (s Server, err error) {
	g := appOf(cmd)
	if s.URL, err = g.ServerURL(); err != nil {
		return s, err
	}
	if s.Token, err = g.SessionToken(); err != nil {
		return s, err
	}
	if s.Header, err = g.Header(ctx, s.URL); err != nil {
		return s, err
	}
	s.TLS, err = g.TLSConfig()
	s.RelayOnly = g.RelayOnly
	return s, err
}

// FindTLS returns how to trust servers, according to the global flags. Nil means the system's authorities.
func FindTLS(cmd *cobra.Command) (*tls.Config, error) { return appOf(cmd).TLSConfig() }

// ConfigDir returns the configuration folder that a command's global flags name. Call it from the command's run. An
// empty result means that the system has no place for one.
func ConfigDir(cmd *cobra.Command) string {
	dir, err := config.Open(globalString(cmd, "global-config"))
	if err != nil {
		return ""
	}
	return string(dir)
}

// Verbose reports whether a command's global flags request more logs. Call it from the command's run.
func Verbose(cmd *cobra.Command) bool { return globalString(cmd, "verbose") == "true" }

func globalString(cmd *cobra.Command, name string) string {
	if flag := cmd.Root().PersistentFlags().Lookup(name); flag != nil {
		return flag.Value.String()
	}
	return ""
}
