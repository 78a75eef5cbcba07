package diagnose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// finding is the result of one check.
type finding struct {
	Check  string  `json:"check"`
	Status verdict `json:"status"`
	Detail string  `json:"detail"`
	Remedy string  `json:"remedy,omitempty"` // what to do about it; empty if the check passed
	// Server is the server that the check used: of the coordinator's websocket, or of the relay. Nil for other checks,
	// and while unknown.
	Server *uuid.UUID `json:"server_id,omitempty"`
}

type verdict string

const (
	passed  verdict = "pass"
	warned  verdict = "warn" // it works, but slower or with fewer features
	failed  verdict = "fail"
	skipped verdict = "skip" // an earlier failure leaves nothing to check
)

func pass(format string, args ...any) finding {
	return finding{Status: passed, Detail: fmt.Sprintf(format, args...)}
}

func warn(remedy, format string, args ...any) finding {
	return finding{Status: warned, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(remedy, format string, args ...any) finding {
	return finding{Status: failed, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func skip(why string) finding { return finding{Status: skipped, Detail: why} }

func doctorCmd(g *global.Flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose connection problems",
		Long: `Check the connection between this machine and its workspaces: the server's URL, proxies, TLS, the clock, the session, the coordinator's
websocket, the relay, UDP and the MTU. Each check passes, or says what to do. With several servers, the command names the ones in use.

Exit codes: 0 nothing failed (there may be warnings), 1 a check failed.`,
		Example: `  coder doctor
  coder doctor -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return output.BadFormat(format, "table or json")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
			defer cancel()
			findings := examine(ctx, g)
			if err := printFindings(g, findings, format); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Status == failed {
					return &exit.Error{Code: 1}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return cmd
}

const (
	doctorTimeout = time.Minute
	// checkTimeout bounds one check.
	checkTimeout = 10 * time.Second
)

func printFindings(g *global.Flags, findings []finding, format string) error {
	out := g.Streams().Out
	if format == "json" {
		return output.JSON(out, findings)
	}
	table := tty.Table{Header: []string{"check", "status", "detail"}}
	for _, f := range findings {
		table.Add(f.Check, string(f.Status), f.Detail)
		if f.Remedy != "" {
			table.Add("", "", "→ "+f.Remedy)
		}
	}
	return table.Write(out)
}

// examine runs all checks, each after those that it depends on.
func examine(ctx context.Context, g *global.Flags) []finding {
	x := &examination{app: g}
	checks := []struct {
		name  string
		check func(context.Context) finding
	}{
		{"url", x.checkURL}, {"proxy", x.checkProxy}, {"connection", x.checkConnection}, {"tls", x.checkTLS}, {"server", x.checkServer},
		{"clock", x.checkClock}, {"version", x.checkVersion}, {"session", x.checkSession}, {"websocket", x.checkWebsocket},
		{"relay", x.checkRelay}, {"udp", x.checkUDP}, {"mtu", x.checkMTU},
	}
	findings := make([]finding, 0, len(checks))
	for _, c := range checks {
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		f := c.check(limited)
		cancel()
		f.Check = c.name
		findings = append(findings, f)
	}
	x.end()
	return findings
}

func (x *examination) checkURL(context.Context) finding {
	server, err := x.app.ServerURL()
	if err != nil {
		return fail("coder login https://coder.example.com", "%s", plain(err))
	}
	x.server = server
	if server.Scheme == "http" && !loopback(server.Hostname()) {
		return warn("put the server behind https: session tokens travel readable over http", "%s", server)
	}
	return pass("%s", server)
}

func loopback(host string) bool {
	addr := net.ParseIP(host)
	return host == "localhost" || addr != nil && addr.IsLoopback()
}

// address returns the host and port that the server's URL leads to.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// plain returns an error's message for users.
func plain(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Message != "" {
		return f.Message
	}
	return err.Error()
}
