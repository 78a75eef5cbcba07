package flags

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Yes adds -y.
func Yes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask for confirmation")
}

// Argument requires exactly one argument; its error uses name for the argument.
func Argument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return exit.Try(fault.New(fault.Invalid, "the %s is missing", name), "%s", cmd.UseLine())
		case len(args) > 1:
			return exit.Try(fault.New(fault.Invalid, "expected one %s, got %d: %q", name, len(args), args), "%s",
				cmd.UseLine())
		}
		return nil
	}
}
