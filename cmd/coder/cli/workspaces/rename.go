package workspaces

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func renameCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "rename WORKSPACE NAME",
		Short:   "Rename a workspace",
		Long:    "Rename a workspace. The next build may replace resources whose names contain the old name, and lose what they hold.",
		Example: `  coder rename dev backend`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, fmt.Sprintf("Rename %s to %s? Resources named after it may be lost.", ws.Name, args[1]), false); err != nil {
				return err
			}
			if err := client.UpdateWorkspace(cmd.Context(), ws.ID, sdk.UpdateWorkspaceRequest{
				Name: args[1],
			}); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The workspace %s is now %s.\n", ws.Name, args[1])
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
