package workspaces

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func stopCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:     "stop WORKSPACE",
		Short:   "Stop a workspace",
		Long:    "Stop a workspace and follow its build. Resources that the template keeps while stopped are kept. " + interruptHelp + "\n\n" + replaceHelp,
		Example: `  coder stop dev -y`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if ws.Stopped() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is already stopped.\n", ws.FullName())
					return nil
				}
				if err := g.Confirm(cmd, opts.yes, "Stop "+ws.FullName()+"?", true); err != nil {
					return err
				}
				return stopWorkspace(g, cmd, client, ws, &opts)
			})
		},
	}
	opts.flags(cmd)
	return cmd
}

func stopWorkspace(
	g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions,
) error {
	req := sdk.CreateBuildRequest{Transition: sdk.TransitionStop, Reason: sdk.ReasonCLI}
	if asksReplacing(g, opts) {
		req.AllowReplacing = []string{}
	}
	build, err := client.CreateBuild(cmd.Context(), ws.ID, req)
	if err != nil {
		return err
	}
	return finishAsking(g, cmd, client, ws, build, opts, &req, client.CreateBuild)
}
