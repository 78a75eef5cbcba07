package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func logoutCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "logout",
		Short:   "End the stored session",
		Example: `  coder logout --yes`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "End the session at "+client.URL().String()+"?", true); err != nil {
				return err
			}
			// A session that the server no longer knows has ended.
			if err := client.Logout(cmd.Context()); err != nil && fault.CodeOf(err) != fault.Unauthenticated {
				return err
			}
			if err := g.ForgetSession(client.URL()); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "You are signed out of %s.\n", client.URL())
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
