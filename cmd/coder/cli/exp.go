package cli

import "github.com/spf13/cobra"

// expCmd holds the experimental commands.
func expCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exp",
		Short:   "Experimental commands",
		Example: "  coder exp sync start tools",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(a.syncCmd(), a.rptyCmd())
	return cmd
}
