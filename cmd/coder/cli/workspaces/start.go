package workspaces

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func startCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "start WORKSPACE",
		Short: "Start a workspace",
		Long:  "Start a workspace and follow its build. " + interruptHelp + "\n\n" + replaceHelp,
		Example: `  coder start dev
  coder start dev --ephemeral-parameter reset=true`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if ws.LatestBuild.Status == sdk.WorkspaceRunning && opts.params.Empty() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is already running.\n", ws.FullName())
					return nil
				}
				return startWorkspace(g, cmd, client, ws, &opts, uuid.Nil)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	tagsFlag(cmd, &opts.tags)
	return cmd
}

// startWorkspace requests a start build and follows it. A nil version means the workspace's current one.
func startWorkspace(
	g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID,
) error {
	build, req, err := orderStart(g, cmd, client, ws, opts, version, client.CreateBuild)
	if err != nil {
		return err
	}
	return finishAsking(g, cmd, client, ws, build, opts, &req, client.CreateBuild)
}
