package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func orgInvitationsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "invitations", Aliases: []string{"invitation"}, Short: "Answer invitations to organizations",
		Long: `Answer invitations to organizations. The administrators of an organization invite a user with "coder organizations members add"; the user becomes a
member by accepting. An invitation expires after 30 days.`,
		Example: "  coder organizations invitations list\n  coder organizations invitations accept east",
	}
	cmd.AddCommand(orgInvitationsListCmd(g), orgInvitationsAcceptCmd(g), orgInvitationsDeclineCmd(g),
		orgInvitationsWithdrawCmd(g))
	return cmd
}

func orgInvitationsListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.OrganizationInvitation]{Columns: []output.Column[sdk.OrganizationInvitation]{
		output.Col("organization", func(i sdk.OrganizationInvitation) string { return i.OrganizationName }),
		output.Col("username", func(i sdk.OrganizationInvitation) string { return i.Username }),
		output.Col("invited by", func(i sdk.OrganizationInvitation) string { return i.InvitedBy }),
		output.Col("created at", func(i sdk.OrganizationInvitation) string { return output.Ago(i.CreatedAt) }),
		output.Col("expires at",
			func(i sdk.OrganizationInvitation) string { return i.ExpiresAt.Local().Format("2006-01-02") }),
	}, Initial: []string{"organization", "username", "invited by", "expires at"}}
	var flag organization.Flag
	var sent bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your invitations, or those of an organization",
		Long:    "List your open invitations. With --sent, list those that await an answer in an organization that you administer.",
		Example: "  coder organizations invitations list\n  coder organizations invitations list --sent --org east",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sent {
				return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
					all, err := client.OrganizationInvitations(cmd.Context(), org.ID.String())
					if err != nil {
						return err
					}
					return out.Print(g.Streams().Out, all)
				})
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			all, err := client.MyInvitations(cmd.Context())
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, all)
		},
	}
	out.Flags(cmd)
	flag.Add(cmd)
	cmd.Flags().BoolVar(&sent, "sent", false, "list what an organization has sent")
	return cmd
}

func orgInvitationsAcceptCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "accept ORGANIZATION", Short: "Become a member of an organization",
		Long:    "Become a member of an organization that you are invited to. Its administrators can then create workspaces for you.",
		Example: "  coder organizations invitations accept east", Args: flags.Argument("organization's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := client.AcceptInvitation(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "You are now a member of %s.\n", args[0])
			return nil
		},
	}
}

func orgInvitationsDeclineCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "decline ORGANIZATION", Short: "Decline an invitation",
		Example: "  coder organizations invitations decline east", Args: flags.Argument("organization's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := client.DeclineInvitation(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "You declined the invitation to %s.\n", args[0])
			return nil
		},
	}
}

func orgInvitationsWithdrawCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	cmd := &cobra.Command{
		Use: "withdraw USER", Short: "Withdraw an invitation to an organization",
		Example: "  coder organizations invitations withdraw ann --org east", Args: flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				if err := client.WithdrawInvitation(cmd.Context(), org.ID.String(), args[0]); err != nil {
					return err
				}
				fmt.Fprintf(g.Streams().Err, "The invitation of %s to %s is withdrawn.\n", args[0], org.Name)
				return nil
			})
		},
	}
	flag.Add(cmd)
	return cmd
}
