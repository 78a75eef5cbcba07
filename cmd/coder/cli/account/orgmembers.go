package account

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func orgMembersCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "members", Aliases: []string{"member"}, Short: "Manage the members of an organization",
		Example: "  coder organizations members add ann --org east\n  coder organizations members edit-roles ann organization-template-admin --org east",
	}
	cmd.AddCommand(orgMembersListCmd(g), orgMembersAddCmd(g), orgMembersRemoveCmd(g), orgMembersRolesCmd(g))
	return cmd
}

// inOrganization calls do with the organization of the flag.
func inOrganization(
	ctx context.Context, g *global.Flags, flag *organization.Flag, do func(*sdk.Client, sdk.Organization) error,
) error {
	client, err := g.Client(ctx)
	if err != nil {
		return err
	}
	org, err := flag.Find(ctx, client)
	if err != nil {
		return err
	}
	return do(client, org)
}

func orgMembersListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.OrganizationMember]{Columns: []output.Column[sdk.OrganizationMember]{
		output.Col("username", func(m sdk.OrganizationMember) string { return m.Username }),
		output.Col("name", func(m sdk.OrganizationMember) string { return m.Name }),
		output.Col("email", func(m sdk.OrganizationMember) string { return m.Email }),
		output.Col("status", func(m sdk.OrganizationMember) string { return string(m.Status) }),
		output.Col("organization roles", func(m sdk.OrganizationMember) string { return roleNames(m.Roles) }),
		output.Col("last seen at", func(m sdk.OrganizationMember) string { return output.AgoPtr(m.LastSeenAt) }),
		output.Col("created at", func(m sdk.OrganizationMember) string { return output.Ago(m.CreatedAt) }),
		output.Col("updated at", func(m sdk.OrganizationMember) string { return output.Ago(m.UpdatedAt) }),
		output.Col("user created at", func(m sdk.OrganizationMember) string { return output.Ago(m.UserCreatedAt) }),
		output.Col("user updated at", func(m sdk.OrganizationMember) string { return output.Ago(m.UserUpdatedAt) }),
		output.Col("user id", func(m sdk.OrganizationMember) string { return m.UserID.String() }),
		output.Col("organization id", func(m sdk.OrganizationMember) string { return m.OrganizationID.String() }),
	}, Initial: []string{"username", "organization roles"}}
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the members and their roles",
		Example: `  coder organizations members list --org east`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				members, err := client.OrganizationMembers(cmd.Context(), org.ID.String())
				if err != nil {
					return err
				}
				return out.Print(g.Streams().Out, members)
			})
		},
	}
	out.Flags(cmd)
	flag.Add(cmd)
	return cmd
}

func orgMembersAddCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:   "add USER",
		Short: "Add or invite a user, without roles",
		Long: `Add a user as a member. Owners and user admins of the deployment add at once; administrators of the organization invite, and the user becomes
a member by accepting the invitation.`,
		Example: `  coder organizations members add ann --org east`,
		Args:    flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				m, invited, err := client.AddOrganizationMember(cmd.Context(), org.ID.String(), args[0])
				if err != nil {
					return err
				}
				if invited != nil {
					fmt.Fprintf(g.Streams().Err, "%s is invited to %s, and becomes a member by accepting: coder organizations invitations accept %s\n", invited.Username, org.Name, shell.Word(org.Name))
					return nil
				}
				fmt.Fprintf(g.Streams().Err, "%s is now a member of %s.\n", m.Username, org.Name)
				return nil
			})
		},
	}
	flag.Add(cmd)
	return cmd
}

func orgMembersRemoveCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "remove USER",
		Aliases: []string{"rm"},
		Short:   "Remove a member who owns no workspaces there",
		Long: `Remove a member. They lose at once their roles and groups in the organization and what is shared with them there; open connections to its
workspaces end. The server refuses while the member owns workspaces in the organization.`,
		Example: `  coder organizations members remove ann --org east`,
		Args:    flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				if err := client.RemoveOrganizationMember(cmd.Context(), org.ID.String(), args[0]); err != nil {
					return exit.Try(err, "coder organizations members list --org %s", shell.Word(org.Name))
				}
				fmt.Fprintf(g.Streams().Err, "%s is no longer a member of %s.\n", args[0], org.Name)
				return nil
			})
		},
	}
	flag.Add(cmd)
	return cmd
}

func orgMembersRolesCmd(g *global.Flags) *cobra.Command {
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:   "edit-roles USER [ROLE...]",
		Short: "Replace a member's roles",
		Long:  `Replace a member's roles in the organization; without a role, the member has none. "coder organizations roles show" lists the roles.`,
		Example: `  coder organizations members edit-roles ann organization-template-admin --org east
  coder organizations members edit-roles ann --org east`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				// Every member is a "member": it is not a role to assign.
				roles := slices.DeleteFunc(slices.Clone(args[1:]),
					func(r string) bool { return r == "member" || r == "" })
				m, err := client.UpdateOrganizationMemberRoles(cmd.Context(), org.ID.String(), args[0],
					sdk.UpdateRolesRequest{Roles: roles})
				if err != nil {
					return exit.Try(err, "coder organizations roles show --org %s", shell.Word(org.Name))
				}
				fmt.Fprintf(g.Streams().Err, "The roles of %s in %s are now: %s.\n", m.Username, org.Name,
					roleNames(m.Roles))
				return nil
			})
		},
	}
	flag.Add(cmd)
	return cmd
}
