package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/agent/instance"
	"github.com/codermesh/codermesh/v2/agent/keeper"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/scratch"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

type agentOptions struct {
	url, token, tokenFile string
	stateDir, logDir      string
	auth                  string
}

func agentCmd(g *global.Flags) *cobra.Command {
	var opts agentOptions
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a workspace's agent",
		Long: `Run the agent that makes this machine a workspace. It joins the mesh with its token, serves shells, ports and files, and runs the
workspace's scripts. The workspace's init script starts it with the server's URL and the token in the environment.

A machine of a cloud needs no token if its template says so (--auth): its cloud proves to the server which machine it is.`,
		Example: `  CODER_AGENT_URL=https://coder.example.com CODER_AGENT_TOKEN=… coder agent`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), g, opts) },
	}
	f := cmd.Flags()
	f.StringVar(&opts.url, "agent-url", "", "URL of the server (default --url)")
	f.StringVar(&opts.token, "agent-token", "", "token of the agent (default --token)")
	f.StringVar(&opts.tokenFile, "agent-token-file", "", "file with the agent's token")
	f.StringVar(&opts.auth, "auth", instance.Token,
		"how the agent proves who it is: token, aws-instance-identity, azure-instance-identity or google-instance-identity")
	f.StringVar(&opts.stateDir, "state-dir", "",
		"folder for state kept between runs (default in the account's state folder)")
	f.StringVar(&opts.logDir, "log-dir", "", "folder for the scripts' logs (default the temporary folder)")
	flags.SetEnvPrefix(cmd, "CODER_AGENT_")
	flags.SetEnv(f.Lookup("agent-url"), "CODER_AGENT_URL")
	flags.SetEnv(f.Lookup("agent-token"), "CODER_AGENT_TOKEN")
	flags.SetEnv(f.Lookup("agent-token-file"), "CODER_AGENT_TOKEN_FILE")
	flags.SetEnv(f.Lookup("auth"), "CODER_AGENT_AUTH")
	cmd.AddCommand(agentInstallCmd(g), agentUninstallCmd(g))
	return Daemon(cmd)
}

func runAgent(ctx context.Context, g *global.Flags, opts agentOptions) error {
	if !keeper.IsChild() {
		if opts.auth != instance.Token && opts.auth != "" {
			return keepProven(ctx, g, opts)
		}
		return keepAgent(g, opts)
	}
	server, err := agentURL(g, opts)
	if err != nil {
		return err
	}
	kept, err := keeper.Attach()
	if err != nil {
		return err
	}
	// Without the keeper there are no terminals and orphans are not reaped, so the workspace shuts down.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		<-kept.Lost()
		stop()
	}()
	header, err := g.Header(ctx, server)
	if err != nil {
		return err
	}
	tlsConfig, err := g.TLSConfig()
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if g.Verbose {
		level = slog.LevelDebug
	}
	stopped := false
	// The agent handles signals itself: a closed terminal must not end it.
	err = agent.Run(ctx, agent.Options{
		Logger: slog.New(slog.NewTextHandler(g.Streams().Err, &slog.HandlerOptions{Level: level})),
		URL:    server, Token: kept.Token(), StateDir: opts.stateDir, LogDir: opts.logDir, TLS: tlsConfig,
		Header:     header,
		Subsystems: strings.Split(os.Getenv("CODER_AGENT_SUBSYSTEM"), ","),
		RelayOnly:  g.RelayOnly, OwnProcess: true, Returning: keeper.Returning(), Terminals: kept,
		Stopped: func(next secret.Token) { stopped = kept.SetToken(next) == nil },
	})
	if errors.Is(err, agent.ErrRestart) {
		return &exit.Error{Code: keeper.RestartCode}
	}
	if err == nil && stopped {
		return &exit.Error{Code: keeper.StoppedCode}
	}
	forgotten := errors.Is(err, agent.ErrForgotten)
	if code := fault.CodeOf(err); opts.auth != instance.Token && opts.auth != "" &&
		(forgotten || code == fault.Unauthenticated || code == fault.Forbidden) {
		fmt.Fprintln(g.Streams().Err, err)
		return &exit.Error{Code: refusedCode}
	}
	if forgotten {
		return nil
	}
	return err
}

// keepAgent runs the process above the agent's. It checks what the agent needs, so that errors are reported once.
func keepAgent(g *global.Flags, opts agentOptions) error {
	if _, err := agentURL(g, opts); err != nil {
		return err
	}
	token, err := keeper.Token()
	if err != nil {
		return err
	}
	if token == "" {
		if token, err = agentToken(g, opts); err != nil {
			return err
		}
		if err := keeper.Scrub(token); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewTextHandler(g.Streams().Err, nil))
	defer holdProgram(log)()
	code, err := keeper.Run(keeper.Options{Logger: log, Token: token})
	if err != nil || code == 0 {
		return err
	}
	return &exit.Error{Code: code}
}

// scriptPipe is the descriptor that the start script leaves open for the folder of this program.
const scriptPipe = 9

// holdProgram protects the folder that the start script created for this program from later agents' sweeps. The
// returned function removes the folder, which the next start creates and downloads again. Both do nothing unless the
// folder holds this very program.
func holdProgram(log *slog.Logger) func() {
	dir := os.Getenv(agent.ProgramDirEnv)
	exe, err := os.Executable()
	if dir == "" || err != nil || filepath.Join(dir, "coder") != exe {
		return func() {}
	}
	remove := func() error { return os.RemoveAll(dir) }
	if folder, err := scratch.Adopt(dir, scriptPipe); err != nil {
		log.Warn("cannot hold the program's folder", "err", err)
	} else {
		remove = folder.Close
	}
	return func() {
		if err := remove(); err != nil {
			log.Debug("cannot remove the program's folder", "err", err)
		}
	}
}

func agentURL(g *global.Flags, opts agentOptions) (*url.URL, error) {
	text := opts.url
	if text == "" {
		text = g.URL
	}
	if text == "" {
		return nil, exit.Try(fault.New(fault.Invalid, "the server's URL is missing: --agent-url or $CODER_AGENT_URL"),
			"coder agent --help")
	}
	return global.ParseURL(text)
}

func agentToken(g *global.Flags, opts agentOptions) (secret.Token, error) {
	token := opts.token
	if token == "" && opts.tokenFile != "" {
		data, err := os.ReadFile(opts.tokenFile)
		if err != nil {
			return "", fault.New(fault.Invalid, "the agent's token cannot be read: %w", err)
		}
		token = string(data)
	}
	if token == "" {
		token = g.Token
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", exit.Try(fault.New(fault.Invalid, "the agent's token is missing: --agent-token, --agent-token-file or $CODER_AGENT_TOKEN"), "coder agent --help")
	}
	return secret.Token(token), nil
}
