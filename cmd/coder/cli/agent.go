package cli

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/agent"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/secret"
)

type agentOptions struct {
	url, token, tokenFile string
	stateDir, logDir      string
}

func (a *app) agentCmd() *cobra.Command {
	var o agentOptions
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a workspace's agent",
		Long: `Run the agent that makes this machine a workspace: it joins the mesh with its token, serves shells, ports and files, and runs the
workspace's scripts. The workspace's start script runs it; the server's URL and the token are in its environment.`,
		Example: `  CODER_AGENT_URL=https://coder.example.com CODER_AGENT_TOKEN=… coder agent`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.agent(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.url, "agent-url", "", "server (default --url)")
	f.StringVar(&o.token, "agent-token", "", "the agent's token (default --token)")
	f.StringVar(&o.tokenFile, "agent-token-file", "", "file with the agent's token")
	f.StringVar(&o.stateDir, "state-dir", "", "folder for what is kept between runs (default in the account's state folder)")
	f.StringVar(&o.logDir, "log-dir", "", "folder for the scripts' logs (default the temporary folder)")
	SetEnvPrefix(cmd, "CODER_AGENT_")
	SetEnv(f.Lookup("agent-url"), "CODER_AGENT_URL")
	SetEnv(f.Lookup("agent-token"), "CODER_AGENT_TOKEN")
	SetEnv(f.Lookup("agent-token-file"), "CODER_AGENT_TOKEN_FILE")
	return Daemon(cmd)
}

func (a *app) agent(ctx context.Context, o agentOptions) error {
	// As the first process of a container it also buries the orphans, and runs the agent as its child.
	if code, done, err := agent.Init(); done || err != nil {
		if err != nil {
			return err
		}
		return &ExitError{Code: code}
	}
	server, err := a.agentURL(o)
	if err != nil {
		return err
	}
	token, err := a.agentToken(o)
	if err != nil {
		return err
	}
	header, err := a.requestHeader(ctx, server)
	if err != nil {
		return err
	}
	tlsConfig, err := a.tlsConfig()
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if a.verbose {
		level = slog.LevelDebug
	}
	defer removeProgram(a.logger())
	// The agent decides itself which signals end it, and how: a closed terminal must not.
	return agent.Run(context.WithoutCancel(ctx), agent.Options{
		Logger: slog.New(slog.NewTextHandler(a.streams().Err, &slog.HandlerOptions{Level: level})),
		URL:    server, Token: token, StateDir: o.stateDir, LogDir: o.logDir, TLS: tlsConfig, Header: header,
		RelayOnly: a.disableDirect, OwnProcess: true,
	})
}

// removeProgram removes the folder that the bootstrap script made for this program, which the next start downloads anew. It
// removes nothing but a folder that holds this very program.
func removeProgram(log *slog.Logger) {
	dir := os.Getenv("CODER_AGENT_PROGRAM_DIR")
	exe, err := os.Executable()
	if dir == "" || err != nil || filepath.Join(dir, "coder") != exe {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		log.Debug("own program not removed", "err", err)
	}
}

func (a *app) agentURL(o agentOptions) (*url.URL, error) {
	text := o.url
	if text == "" {
		text = a.url
	}
	if text == "" {
		return nil, Try(fault.New(fault.Invalid, "the server's URL is missing: --agent-url or $CODER_AGENT_URL"), "coder agent --help")
	}
	return parseURL(text)
}

func (a *app) agentToken(o agentOptions) (secret.Token, error) {
	token := o.token
	if token == "" && o.tokenFile != "" {
		data, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return "", fault.New(fault.Invalid, "the agent's token cannot be read: %w", err)
		}
		token = string(data)
	}
	if token == "" {
		token = a.token
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", Try(fault.New(fault.Invalid, "the agent's token is missing: --agent-token, --agent-token-file or $CODER_AGENT_TOKEN"), "coder agent --help")
	}
	return secret.Token(token), nil
}
