package templates

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/internal/sdk"
)

func templatesListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Template]{Columns: []output.Column[sdk.Template]{
		output.Col("name", func(t sdk.Template) string { return t.Name }),
		output.Col("display name", func(t sdk.Template) string { return t.DisplayName }),
		output.Col("description", func(t sdk.Template) string { return t.Description }),
		output.Col("last updated", func(t sdk.Template) string { return output.Ago(t.UpdatedAt) }),
		output.Col("used by", func(t sdk.Template) string {
			if t.ActiveUserCount < 0 {
				return ""
			}
			return strconv.Itoa(t.ActiveUserCount)
		}),
		output.Col("created by", func(t sdk.Template) string { return t.CreatedByName }),
		output.Col("deprecated", func(t sdk.Template) string { return t.DeprecationMessage }),
		output.Col("id", func(t sdk.Template) string { return t.ID.String() }),
		output.Col("active version id", func(t sdk.Template) string { return t.ActiveVersionID.String() }),
	}, Initial: []string{"name", "description", "last updated", "used by"}}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List templates",
		Example: `  coder templates list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			templates, err := client.OrganizationTemplates(cmd.Context(), sdk.DefaultOrganization)
			if err != nil {
				return err
			}
			if len(templates) == 0 && out.Format == "table" {
				fmt.Fprintln(g.Streams().Err, "There are no templates yet. Write a starter: coder templates init")
				return nil
			}
			return out.Print(g.Streams().Out, templates)
		},
	}
	out.Flags(cmd)
	return cmd
}
