package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func whoamiCmd(g *global.Flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show who is signed in, and where",
		Example: `  coder whoami`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			user, err := client.User(cmd.Context(), sdk.Me)
			if err != nil {
				return err
			}
			out := g.Streams().Out
			switch format {
			case "json":
				return output.JSON(out, []any{map[string]any{"url": client.URL().String(), "username": user.Username, "id": user.ID, "roles": user.Roles}})
			case "text":
				_, err = fmt.Fprintf(out, "You are %s at %s.\n", user.Username, client.URL())
				return err
			}
			return output.BadFormat(format, "text or json")
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}
