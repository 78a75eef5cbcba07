package workspaces

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func autoupdateCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "autoupdate WORKSPACE {always | never}",
		Short:   "Turn automatic updates on or off",
		Example: `  coder autoupdate dev always`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, ws, err := find(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes || !g.Streams().InTTY, "Set automatic updates of "+ws.FullName()+" to "+args[1]+"?", true); err != nil {
				return err
			}
			req := sdk.UpdateAutomaticUpdatesRequest{AutomaticUpdates: sdk.AutomaticUpdates(args[1])}
			if err := client.UpdateAutomaticUpdates(cmd.Context(), ws.ID, req); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Automatic updates of %s: %s.\n", ws.FullName(), args[1])
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
