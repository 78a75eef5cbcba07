package templates

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func templatesDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	var org organization.Flag
	cmd := &cobra.Command{
		Use:     "delete TEMPLATE...",
		Aliases: []string{"rm"},
		Short:   "Delete templates that no workspace uses",
		Example: `  coder templates delete docker -y`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete "+strings.Join(args, ", ")+"?", false); err != nil {
				return err
			}
			for _, name := range args {
				t, err := org.Template(cmd.Context(), client, name)
				if err != nil {
					return err
				}
				if err := client.DeleteTemplate(cmd.Context(), t.ID); err != nil {
					return exit.Try(err, "coder list --all --search %s", shell.Word("template:"+t.Name))
				}
				fmt.Fprintf(g.Streams().Err, "The template %s has been deleted.\n", t.Name)
			}
			return nil
		},
	}
	org.AddLookup(cmd)
	flags.Yes(cmd, &yes)
	return cmd
}
