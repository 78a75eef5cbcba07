package output

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// Absent describes commands for things that other servers have and this one does not. They answer scripts that were
// made for those: the list is empty, and every other command fails with the reason.
type Absent struct {
	Name    string   // of the command
	Aliases []string // likewise
	Things  string   // in the plural: "tasks"
	Reason  string   // a clause: "this server has no tasks"
	Remedy  string   // a sentence: what to do instead
	Verbs   []string // the other commands
}

// Command returns the commands, which help does not list.
func (a Absent) Command(streams func() *tty.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use: a.Name, Aliases: a.Aliases, Short: "List " + a.Things + ", which this server does not have",
		Example: "  coder " + a.Name + " list", Hidden: true,
	}
	var format string
	list := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List " + a.Things + ": the list is always empty",
		Example: "  coder " + a.Name + " list -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch format {
			case "json":
				return JSON(streams().Out, []string{})
			case "table":
				_, err := fmt.Fprintf(streams().Err, "There are no %s: %s. %s\n", a.Things, a.Reason, a.Remedy)
				return err
			}
			return BadFormat(format, "table or json")
		},
	}
	list.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	cmd.AddCommand(list)
	for _, verb := range a.Verbs {
		cmd.AddCommand(&cobra.Command{
			Use: verb, Short: "Explain why there are no " + a.Things, Example: "  coder " + a.Name + " " + verb,
			Args:               cobra.ArbitraryArgs,
			FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
			RunE: func(*cobra.Command, []string) error {
				return fault.New(fault.NotFound, "%s", a.Reason).WithDetail("%s", a.Remedy)
			},
		})
	}
	return cmd
}
