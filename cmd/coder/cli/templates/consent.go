package templates

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func consentCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "consent", Aliases: []string{"consents"}, Short: "Manage which templates get your credentials",
		Long: `List and revoke your consents. Workspaces of a template get your session token, SSH key, external logins and secrets only after you have
started one of them yourself. Starting a workspace again after a revocation consents again.`,
		Example: `  coder templates consent list
  coder templates consent revoke docker`,
	}
	cmd.AddCommand(consentListCmd(g), consentRevokeCmd(g))
	return cmd
}

func consentListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.TemplateConsent]{Columns: []output.Column[sdk.TemplateConsent]{
		output.Col("template", func(c sdk.TemplateConsent) string { return c.TemplateName }),
		output.Col("organization", func(c sdk.TemplateConsent) string { return c.OrganizationName }),
		output.Col("given", func(c sdk.TemplateConsent) string { return output.Ago(c.CreatedAt) }),
		output.Col("id", func(c sdk.TemplateConsent) string { return c.TemplateID.String() }),
	}, Initial: []string{"template", "organization", "given"}}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the templates whose workspaces get your credentials",
		Example: `  coder templates consent list -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			consents, err := client.TemplateConsents(cmd.Context(), sdk.Me)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, consents)
		},
	}
	out.Flags(cmd)
	return cmd
}

func consentRevokeCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TEMPLATE", Short: "Stop giving your credentials to a template's workspaces",
		Long: `Stop giving your credentials to a template's workspaces, running ones too. TEMPLATE is a name, ORGANIZATION/NAME or an id. What the template has
already read stays with it.`,
		Example: `  coder templates consent revoke docker`,
		Args:    flags.Argument("template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			consents, err := client.TemplateConsents(cmd.Context(), sdk.Me)
			if err != nil {
				return err
			}
			// Found among the consents: users may have lost access to the template.
			found, err := consentTo(consents, args[0])
			if err != nil {
				return err
			}
			if err := client.RevokeTemplateConsent(cmd.Context(), sdk.Me, found.TemplateID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Revoked your consent to %s. Its workspaces no longer get your credentials.\n",
				found.TemplateName)
			return nil
		},
	}
}

// consentTo returns the consent to the template that a user names.
func consentTo(consents []sdk.TemplateConsent, name string) (sdk.TemplateConsent, error) {
	var found []sdk.TemplateConsent
	id, err := uuid.Parse(name)
	for _, c := range consents {
		if err == nil && c.TemplateID == id || c.TemplateName == name || c.OrganizationName+"/"+c.TemplateName == name {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return sdk.TemplateConsent{}, exit.Try(fault.New(fault.NotFound, "you do not consent to a template %q", name),
			"coder templates consent list")
	case 1:
		return found[0], nil
	}
	return sdk.TemplateConsent{}, exit.Try(fault.New(fault.Invalid, "you consent to %d templates named %q", len(found),
		name),
		"coder templates consent revoke %s", shell.Word(found[0].OrganizationName+"/"+name))
}
