package workspaces

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func updateCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "update WORKSPACE",
		Short: "Build a workspace with its template's active version",
		Long: `Build a workspace with its template's active version. A running workspace is stopped and started again. Parameters keep their values;
on a terminal the command asks for new ones. An invalid value is refused before the workspace stops. ` + interruptHelp + "\n\n" + replaceHelp,
		Example: `  coder update dev
  coder update dev --parameter region=eu`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if !ws.Outdated && !opts.always && opts.params.Empty() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is up to date.\n", ws.FullName())
					return nil
				}
				return restartWorkspace(g, cmd, client, ws, &opts, ws.TemplateActiveVersionID)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	return cmd
}
