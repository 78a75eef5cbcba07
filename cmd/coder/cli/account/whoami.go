package account

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// session is who is signed in. Its fields are those of Coder's command line, and id and site_roles.
type session struct {
	URL           string      `json:"url"`
	Username      string      `json:"username"`
	UserID        uuid.UUID   `json:"user_id"`
	ID            uuid.UUID   `json:"id"`
	Organizations []uuid.UUID `json:"organization_ids"`
	// Roles has the roles in each organization, by its id.
	Roles     map[string][]string `json:"roles"`
	SiteRoles []sdk.Role          `json:"site_roles"`
}

func whoamiCmd(g *global.Flags) *cobra.Command {
	out := output.List[session]{Columns: []output.Column[session]{
		output.Col("url", func(s session) string { return s.URL }),
		output.Col("username", func(s session) string { return s.Username }),
		output.Col("id", func(s session) string { return s.ID.String() }),
		output.Col("organizations", func(s session) string {
			ids := make([]string, len(s.Organizations))
			for i, id := range s.Organizations {
				ids[i] = id.String()
			}
			return strings.Join(ids, ",")
		}),
		output.Col("roles", func(s session) string { return roleNames(s.SiteRoles) }),
	}, Initial: []string{"url", "username", "id"}}
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show who is signed in, and where",
		Example: `  coder whoami`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			user, err := client.User(cmd.Context(), sdk.Me)
			if err != nil {
				return err
			}
			if out.Format == "text" {
				_, err = fmt.Fprintf(g.Streams().Out, "You are %s at %s.\n", user.Username, client.URL())
				return err
			}
			me := session{
				URL: client.URL().String(), Username: user.Username, UserID: user.ID, ID: user.ID,
				Organizations: user.OrganizationIDs,
				Roles:         map[string][]string{}, SiteRoles: user.Roles,
			}
			if out.Format == "json" {
				roles, err := client.UserRoles(cmd.Context(), sdk.Me)
				if err != nil {
					return err
				}
				for org, names := range roles.OrganizationRoles {
					me.Roles[org] = names
				}
			}
			return out.Print(g.Streams().Out, []session{me})
		},
	}
	out.Flags(cmd)
	f := cmd.Flags().Lookup("output")
	f.DefValue, f.Usage, out.Format = "text", "text, table or json", "text"
	return cmd
}
