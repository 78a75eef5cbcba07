package templates

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const organizationColumn = "organization name"

// flatTemplate and the like are embedded in JSON under a name that leaves their own to a field.
type (
	flatTemplate = sdk.Template
	flatVersion  = sdk.TemplateVersion
	flatPreset   = sdk.Preset
)

// templateJSON is a template as scripts read it: flat, as the API has it, and below "Template", where Coder's command
// line has it.
type templateJSON struct {
	flatTemplate
	Template sdk.Template `json:"Template"`
}

func templatesListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Template]{Columns: []output.Column[sdk.Template]{
		output.Col("name", func(t sdk.Template) string { return t.Name }),
		output.Col(organizationColumn, func(t sdk.Template) string { return t.OrganizationName }),
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
		output.Col("created at", func(t sdk.Template) string { return output.Ago(t.CreatedAt) }),
		output.Col("organization id", func(t sdk.Template) string { return t.OrganizationID.String() }),
		output.Col("provisioner", func(t sdk.Template) string { return string(t.Provisioner) }),
		output.Col("default ttl", func(t sdk.Template) string {
			return (time.Duration(t.DefaultTTLMillis) * time.Millisecond).String()
		}),
		output.Col("active version id", func(t sdk.Template) string { return t.ActiveVersionID.String() }),
	}, Initial: []string{"name", "description", "last updated", "used by"}, JSON: func(t sdk.Template) any { return templateJSON{t, t} }}
	var org organization.Flag
	var sort string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List templates",
		Long:    `List templates. The column "organization name" is shown if they belong to several organizations.`,
		Example: "  coder templates list\n  coder templates list --org east\n  coder templates list --sort users",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			templates, err := org.Templates(cmd.Context(), client, sdk.TemplateOrder(sort))
			if err != nil {
				return err
			}
			if len(templates) == 0 && out.Format == "table" {
				fmt.Fprintln(g.Streams().Err, "There are no templates yet. Write a starter: coder templates init")
				return nil
			}
			if slices.ContainsFunc(templates, func(t sdk.Template) bool { return t.OrganizationID != templates[0].OrganizationID }) {
				out.Initial = slices.Insert(out.Initial, 1, organizationColumn)
			}
			return out.Print(g.Streams().Out, templates)
		},
	}
	out.Flags(cmd)
	cmd.Flags().StringVar(&sort, "sort", "", "order: name, users or updated (default: name)")
	org.AddFilter(cmd)
	return cmd
}
