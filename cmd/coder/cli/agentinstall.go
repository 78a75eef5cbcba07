package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/agent/autostart"
	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func agentInstallCmd(g *global.Flags) *cobra.Command {
	var opts agentOptions
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Start this machine's agent whenever the machine starts",
		Long: `Install the agent as a service of this account, and start it: a unit of systemd on Linux, a service of
launchd on macOS, a scheduled task on Windows.
It keeps a copy of this program, and the token in a file that only this account can read. Run the command again to replace
either: the agent of an external workspace has another token after each start of the workspace.`,
		Example: `  CODER_AGENT_TOKEN=… coder agent install --agent-url https://coder.example.com`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := agentURL(g, opts)
			if err != nil {
				return err
			}
			// Not from the command line, where other accounts can read it.
			if opts.token = os.Getenv("CODER_AGENT_TOKEN"); opts.token == "" && opts.tokenFile == "" {
				return exit.Try(fault.New(fault.Invalid,
					"the agent's token is missing: --agent-token-file or $CODER_AGENT_TOKEN"),
					"coder agent install --help")
			}
			service := agentService()
			if service.Token, err = agentToken(g, opts); err != nil {
				return err
			}
			if service.Program, err = os.Executable(); err != nil {
				return fmt.Errorf("find own program: %w", err)
			}
			service.URL = server.String()
			note, err := autostart.Install(cmd.Context(), service)
			if err != nil {
				return fmt.Errorf("the agent cannot be installed: %w", err)
			}
			fmt.Fprintln(g.Streams().Err, "The agent is installed and starts now.")
			if note != "" {
				fmt.Fprintln(g.Streams().Err, note)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.url, "agent-url", "", "URL of the server (default --url)")
	f.StringVar(&opts.tokenFile, "agent-token-file", "", "file with the agent's token (default $CODER_AGENT_TOKEN)")
	flags.SetEnvPrefix(cmd, "CODER_AGENT_")
	flags.SetEnv(f.Lookup("agent-url"), "CODER_AGENT_URL")
	flags.SetEnv(f.Lookup("agent-token-file"), "CODER_AGENT_TOKEN_FILE")
	return cmd
}

func agentUninstallCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "End the agent that \"coder agent install\" installed, and remove it",
		Long: `End the agent that "coder agent install" installed for this account, and remove it with its token. The workspace goes on,
without this machine.`,
		Example: `  coder agent uninstall`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := autostart.Uninstall(cmd.Context(), agentService())
			if errors.Is(err, autostart.ErrAbsent) {
				return fault.New(fault.NotFound, "%w", err)
			}
			if err != nil {
				return fmt.Errorf("the agent cannot be removed completely: %w", err)
			}
			fmt.Fprintln(g.Streams().Err, "The agent is removed.")
			return nil
		},
	}
}

// agentService describes the service of this account.
func agentService() autostart.Options {
	user := proc.CurrentUser()
	return autostart.Options{
		Account: user.Name, Home: user.Home, Machine: os.Geteuid() == 0, Folder: agent.AutostartDir(),
	}
}
