package workspaces

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// externalSearch finds workspaces with external agents.
const externalSearch = "has-external-agent:true"

func externalCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "external-workspaces",
		Short: "Manage workspaces whose agents you start yourself",
		Long: `Manage workspaces whose agents you start yourself, on machines that their template does not make. Templates declare such agents with
coder_external_agent.`,
		Example: `  coder create lab -t own-machine
  coder external-workspaces agent-instructions lab`,
	}
	create := createCmd(g)
	create.Short = "Create a workspace whose agent you start yourself"
	create.Example = "  coder external-workspaces create lab -t own-machine"
	list := listOf(g, externalSearch)
	list.Short, list.Long = "List workspaces whose agents users start themselves", ""
	list.Example = `  coder external-workspaces list
  coder external-workspaces list --all -o json`
	cmd.AddCommand(create, list, instructionsCmd(g))
	return cmd
}

// instructions have the fields of Coder's command line beside the API's.
type instructions struct {
	sdk.ExternalAgentCredentials
	Workspace  string `json:"workspace_name"`
	Agent      string `json:"agent_name"`
	AuthType   string `json:"auth_type"`
	AuthToken  string `json:"auth_token"`
	InitScript string `json:"init_script"`
}

func instructionsCmd(g *global.Flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "agent-instructions WORKSPACE[.AGENT]",
		Short: "Print the command that starts an external agent",
		Long: `Print the command that starts an external agent. Run it on the agent's machine, as the account that the workspace should have. The
command contains the agent's token, which changes with each build of the workspace: after a restart, run the new command. Only the
workspace's owner can read it.`,
		Example: `  coder external-workspaces agent-instructions lab
  coder external-workspaces agent-instructions lab.gpu -o json`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "text" && format != "json" {
				return output.BadFormat(format, "text or json")
			}
			ctx := cmd.Context()
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			ws, name, err := target.Find(ctx, client, args[0])
			if err != nil {
				return err
			}
			agent, err := target.ChooseAgent(ws, name.Agent)
			if err != nil {
				return err
			}
			how, err := client.ExternalAgentCredentials(ctx, ws.ID, agent.Name)
			if err != nil {
				return err
			}
			if format == "json" {
				return output.JSON(g.Streams().Out,
					instructions{how, ws.Name, agent.Name, "token", how.AgentToken, how.Command})
			}
			fmt.Fprintf(g.Streams().Err,
				"Run this on the machine of the agent %s. Keep it secret: it contains the agent's token.\n", agent.Name)
			_, err = fmt.Fprintln(g.Streams().Out, how.Command)
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}
