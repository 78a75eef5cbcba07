package workspaces

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func deleteCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:     "delete WORKSPACE",
		Aliases: []string{"rm"},
		Short:   "Delete a workspace and everything it holds",
		Long:    "Delete a workspace: destroy its resources with everything they hold. " + interruptHelp,
		Example: `  coder delete dev -y`,
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(ctx context.Context, client *sdk.Client, ws sdk.Workspace) error {
				text := "Delete " + ws.FullName() + " and everything it holds?"
				if opts.orphan {
					text = "Forget " + ws.FullName() + " without destroying its resources" + namesOf(ws.LatestBuild.Resources) + "?"
				}
				if err := g.Confirm(cmd, opts.yes, text, false); err != nil {
					return err
				}
				build, err := client.CreateBuild(ctx, ws.ID, sdk.CreateBuildRequest{
					Transition: sdk.TransitionDelete, Orphan: opts.orphan, Reason: sdk.ReasonCLI,
				})
				if err != nil {
					return err
				}
				return finish(ctx, g, client, ws, build, opts.noWait)
			})
		},
	}
	opts.flags(cmd)
	cmd.Flags().BoolVar(&opts.orphan, "orphan", false,
		"forget the resources instead of destroying them; for template admins")
	return cmd
}

// namesOf lists resources in parentheses, or returns "" if there are none.
func namesOf(resources []sdk.WorkspaceResource) string {
	var names []string
	for _, r := range resources {
		if !strings.HasPrefix(r.Type, "coder_") {
			names = append(names, r.Type+"."+r.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
