package cli

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/fault"
)

// yesFlag adds -y.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// argument checks that exactly one argument is given, and names it when not.
func argument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return Try(fault.New(fault.Invalid, "the %s is missing", name), "%s", cmd.UseLine())
		case len(args) > 1:
			return Try(fault.New(fault.Invalid, "expected one %s, got %q", name, args), "%s", cmd.UseLine())
		}
		return nil
	}
}
