package workspaces

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func restartCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "restart WORKSPACE",
		Short: "Stop a workspace and start it again",
		Long: "Stop a workspace and start it again, following both builds. An invalid parameter is refused before the workspace stops. " + interruptHelp +
			"\n\n" + replaceHelp,
		Example: `  coder restart dev -y`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if err := g.Confirm(cmd, opts.yes, "Restart "+ws.FullName()+"?", true); err != nil {
					return err
				}
				return restartWorkspace(g, cmd, client, ws, &opts, uuid.Nil)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	return cmd
}

// restartWorkspace makes the server stop and start a workspace, and follows both builds. The server refuses an
// impossible start before it stops anything, and starts the workspace even if this program ends in the meantime.
func restartWorkspace(
	g *global.Flags, cmd *cobra.Command, client *sdk.Client, ws sdk.Workspace, opts *buildOptions, version uuid.UUID,
) error {
	ctx := cmd.Context()
	build, req, err := orderStart(g, cmd, client, ws, opts, version, client.Restart)
	if err != nil {
		return err
	}
	if opts.noWait {
		fmt.Fprintf(g.Streams().Err, "The restart of %s is queued.\n", ws.FullName())
		sayWaiting(g, build.Job)
		return nil
	}
	if build.Transition == sdk.TransitionStart {
		return finishAsking(g, cmd, client, ws, build, opts, &req, client.CreateBuild)
	}
	if err := finishAsking(g, cmd, client, ws, build, opts, &req, client.Restart); err != nil {
		return err
	}
	now, err := client.Workspace(ctx, ws.ID)
	if err != nil {
		return err
	}
	if now.LatestBuild.Transition == sdk.TransitionStop {
		return exit.Try(fault.New(fault.Conflict,
			"the workspace %s was stopped but not started again: its template changed in the meantime", ws.FullName()),
			"coder start %s", shell.Word(ws.FullName()))
	}
	return finishAsking(g, cmd, client, now, now.LatestBuild, opts, &req, client.CreateBuild)
}
