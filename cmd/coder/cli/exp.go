package cli

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/connect"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/inside"
)

// expCmd returns the command that holds the experimental commands.
func expCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exp",
		Short:   "Experimental commands",
		Example: "  coder exp sync start tools",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(inside.SyncCmd(g), connect.RptyCmd(g))
	return cmd
}
