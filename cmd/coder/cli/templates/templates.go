// Package templates holds the commands for templates and their versions.
package templates

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

func Command(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "templates", Aliases: []string{"template"}, Short: "Manage templates", Example: "  coder templates init docker && coder templates push docker -d docker"}
	cmd.AddCommand(templatesInitCmd(g), templatesPushCmd(g, "push"), templatesPushCmd(g, "create"), templatesPullCmd(g), templatesListCmd(g),
		templatesEditCmd(g), templatesDeleteCmd(g), versionsCmd(g))
	return cmd
}

// findTemplate returns a template by name.
func findTemplate(ctx context.Context, client *sdk.Client, name string) (sdk.Template, error) {
	t, err := client.TemplateByName(ctx, sdk.DefaultOrganization, name)
	if err != nil && fault.CodeOf(err) == fault.NotFound {
		return t, exit.Try(fault.New(fault.NotFound, "there is no template %q", name), "coder templates list")
	}
	return t, err
}
