// Package templates holds the commands for templates and their versions.
package templates

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
)

func Command(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "templates", Aliases: []string{"template"}, Short: "Manage templates", Example: "  coder templates init docker && coder templates push docker -d docker"}
	cmd.AddCommand(templatesInitCmd(g), templatesPushCmd(g, "push"), templatesPushCmd(g, "create"), templatesPullCmd(g),
		templatesListCmd(g),
		templatesEditCmd(g), templatesDeleteCmd(g), templatesArchiveCmd(g), presetsCmd(g), versionsCmd(g), consentCmd(g))
	return cmd
}
