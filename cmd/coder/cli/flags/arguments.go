package flags

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// CheckArguments makes every command below cmd report unexpected arguments as errors of this program. Without it, cobra
// would print the help of a group that is called with an unknown command, and succeed.
func CheckArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		CheckArguments(sub)
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.RunE, cmd.DisableFlagsInUseLine = cobra.ArbitraryArgs, group, true
		return
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return explainArguments(cmd, args, check(cmd, args)) }
	}
}

// ExplainFlags makes every command below cmd report unknown flags with the one that was probably meant.
func ExplainFlags(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		unknown, ok := errors.AsType[*pflag.NotExistError](err)
		if !ok {
			return exit.Try(fault.New(fault.Invalid, "%w", err), "%s --help", cmd.CommandPath())
		}
		name := unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			return exit.Try(fault.New(fault.Invalid, "%s has no flag -%s", cmd.CommandPath(), name), "%s --help",
				cmd.CommandPath())
		}
		if why, ok := absent[cmd.CommandPath()+" --"+name]; ok {
			return exit.Try(fault.New(fault.Invalid, "%s has no flag --%s: %s", cmd.CommandPath(), name, why),
				"coder workspace-proxy --help")
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		refused := fault.New(fault.Invalid, "%s has no flag --%s", cmd.CommandPath(), name)
		if near := nearest.To(name, names); near != "" {
			return exit.Try(refused, "%s --%s", cmd.CommandPath(), shell.Word(near))
		}
		return exit.Try(refused, "%s --help", cmd.CommandPath())
	})
}

// group runs a command that only holds others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := fault.New(fault.Invalid, "%s has no command %q", cmd.CommandPath(), args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return exit.Try(err, "%s %s", cmd.CommandPath(), strings.Join(near, " or "+cmd.CommandPath()+" "))
	}
	return exit.Try(err, "%s --help", cmd.CommandPath())
}

// explainArguments replaces cobra's errors, which count arguments without naming them.
func explainArguments(cmd *cobra.Command, args []string, err error) error {
	if _, hinted := exit.Hint(err); err == nil || fault.As(err) != nil || hinted {
		return err
	}
	_, takes, _ := strings.Cut(cmd.Use, " ")
	switch {
	case takes == "":
		err = fault.New(fault.Invalid, "%s takes no arguments, but got %q", cmd.CommandPath(), strings.Join(args, " "))
	case len(args) == 0:
		err = fault.New(fault.Invalid, "%s needs arguments", cmd.CommandPath())
	default:
		err = fault.New(fault.Invalid, "%s cannot use the arguments %q", cmd.CommandPath(), strings.Join(args, " "))
	}
	return exit.Try(err, "%s", cmd.UseLine())
}
