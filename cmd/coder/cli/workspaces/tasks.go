package workspaces

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/internal/fault"
)

// taskCmd answers scripts made for servers with tasks.
func taskCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "task", Aliases: []string{"tasks"}, Short: "List tasks, which this server does not have", Example: "  coder task list", Hidden: true}
	var format string
	list := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tasks: the list is always empty",
		Example: `  coder task list -o json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch format {
			case "json":
				return output.JSON(g.Streams().Out, []string{})
			case "table":
				_, err := fmt.Fprintln(g.Streams().Err, "This server has no tasks. Create a workspace instead: coder create")
				return err
			}
			return output.BadFormat(format, "table or json")
		},
	}
	list.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	create := &cobra.Command{
		Use:     "create",
		Short:   "Explain that the server has no tasks",
		Example: `  coder task create`,
		Args:    cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return fault.New(fault.NotFound, "this server has no tasks").WithDetail("Create a workspace instead: coder create")
		},
	}
	cmd.AddCommand(list, create)
	return cmd
}
