package account

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func groupsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "groups", Aliases: []string{"group"}, Short: "Manage groups of users",
		Long: `Manage groups of users in an organization. Templates and workspaces can be shared with a group, and its members may use its quota.
The group Everyone contains all members of the organization.`,
		Example: "  coder groups create developers\n  coder groups edit developers --add-users ann,bob",
	}
	cmd.AddCommand(groupsCreateCmd(g), groupsListCmd(g), groupsEditCmd(g), groupsDeleteCmd(g))
	return cmd
}

// findGroup returns the named group. The error for an unknown one names the group that is spelled almost like that.
func findGroup(ctx context.Context, client *sdk.Client, org sdk.Organization, name string) (sdk.Group, error) {
	group, err := client.GroupByName(ctx, org.ID.String(), name)
	if fault.CodeOf(err) != fault.NotFound {
		return group, err
	}
	list, listErr := client.Groups(ctx, sdk.GroupsQuery{Organization: org.ID.String()})
	if listErr != nil {
		return group, exit.Try(err, "coder groups list")
	}
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	if near := nearest.To(name, names); near != "" {
		return group, exit.Try(err, "Did you mean %s? List groups with: coder groups list", near)
	}
	return group, exit.Try(err, "coder groups list")
}

func groupsCreateCmd(g *global.Flags) *cobra.Command {
	var req sdk.CreateGroupRequest
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a group",
		Example: `  coder groups create developers --display-name "All developers" --quota-allowance 20`,
		Args:    flags.Argument("group's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			req.Name = args[0]
			org, err := flag.Find(cmd.Context(), client)
			if err != nil {
				return err
			}
			made, err := client.CreateGroup(cmd.Context(), org.ID.String(), req)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The group %s has been created.\n", made.Name)
			return nil
		},
	}
	flag.Add(cmd)
	f := cmd.Flags()
	f.StringVar(&req.DisplayName, "display-name", "", "name shown to users")
	f.StringVarP(&req.AvatarURL, "avatar-url", "u", "", "URL of a picture")
	f.IntVar(&req.QuotaAllowance, "quota-allowance", 0,
		"credits a day that each member's workspaces may cost, added to those of other groups")
	return cmd
}

func groupsListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.Group]{Columns: []output.Column[sdk.Group]{
		output.Col("name", func(x sdk.Group) string { return x.Name }),
		output.Col("display name", func(x sdk.Group) string { return x.DisplayName }),
		output.Col("organization", func(x sdk.Group) string { return x.OrganizationName }),
		output.Col("members", func(x sdk.Group) string { return strconv.Itoa(x.TotalMemberCount) }),
		output.Col("quota", func(x sdk.Group) string { return strconv.Itoa(x.QuotaAllowance) }),
		output.Col("source", func(x sdk.Group) string { return string(x.Source) }),
		output.Col("organization id", func(x sdk.Group) string { return x.OrganizationID.String() }),
		output.Col("avatar url", func(x sdk.Group) string { return x.AvatarURL }),
		output.Col("id", func(x sdk.Group) string { return x.ID.String() }),
	}, Initial: []string{"name", "display name", "organization", "members", "quota"}}
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List groups",
		Example: `  coder groups list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := flag.Find(cmd.Context(), client)
			if err != nil {
				return err
			}
			groups, err := client.Groups(cmd.Context(), sdk.GroupsQuery{Organization: org.ID.String()})
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, groups)
		},
	}
	flag.Add(cmd)
	out.Flags(cmd)
	return cmd
}

func groupsEditCmd(g *global.Flags) *cobra.Command {
	var name, display, avatar string
	var flag organization.Flag
	var add, remove []string
	var quota int
	cmd := &cobra.Command{
		Use:     "edit GROUP",
		Short:   "Change a group's members, name and quota",
		Example: "  coder groups edit developers --add-users ann,bob --rm-users eve\n  coder groups edit Everyone --quota-allowance 10",
		Args:    flags.Argument("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := flag.Find(cmd.Context(), client)
			if err != nil {
				return err
			}
			group, err := findGroup(cmd.Context(), client, org, args[0])
			if err != nil {
				return err
			}
			req := sdk.PatchGroupRequest{Name: name}
			given := cmd.Flags().Changed
			if given("display-name") {
				req.DisplayName = &display
			}
			if given("avatar-url") {
				req.AvatarURL = &avatar
			}
			if given("quota-allowance") {
				req.QuotaAllowance = &quota
			}
			if !given("name") && !given("display-name") && !given("avatar-url") && !given("quota-allowance") &&
				len(add)+len(remove) == 0 {
				return exit.Try(fault.New(fault.Invalid, "no changes given"), "coder groups edit --help")
			}
			if req.AddUsers, err = memberIDs(cmd.Context(), client, org.ID.String(), add); err != nil {
				return err
			}
			if req.RemoveUsers, err = memberIDs(cmd.Context(), client, org.ID.String(), remove); err != nil {
				return err
			}
			if group, err = client.PatchGroup(cmd.Context(), group.ID, req); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Updated the group %s. Members: %d\n", group.Name, group.TotalMemberCount)
			return nil
		},
	}
	flag.Add(cmd)
	f := cmd.Flags()
	f.StringSliceVarP(&add, "add-users", "a", nil, "users to add, by name or id")
	f.StringSliceVarP(&remove, "rm-users", "r", nil, "users to remove, by name or id")
	f.StringVarP(&name, "name", "n", "", "new name")
	f.StringVar(&display, "display-name", "", "name shown to users")
	f.StringVarP(&avatar, "avatar-url", "u", "", "URL of a picture")
	f.IntVar(&quota, "quota-allowance", 0,
		"credits a day that each member's workspaces may cost, added to those of other groups")
	return cmd
}

// memberIDs returns the ids of members of an organization.
func memberIDs(ctx context.Context, client *sdk.Client, organization string, names []string) ([]string, error) {
	var ids []string
	for _, name := range names {
		m, err := client.OrganizationMember(ctx, organization, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, m.UserID.String())
	}
	return ids, nil
}

func groupsDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "delete GROUP",
		Aliases: []string{"rm"},
		Short:   "Delete a group and end what is shared with it",
		Example: `  coder groups delete developers`,
		Args:    flags.Argument("group"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := flag.Find(cmd.Context(), client)
			if err != nil {
				return err
			}
			group, err := findGroup(cmd.Context(), client, org, args[0])
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete the group "+group.Name+"? Its members lose what is shared with it.", false); err != nil {
				return err
			}
			if err := client.DeleteGroup(cmd.Context(), group.ID); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The group %s has been deleted.\n", group.Name)
			return nil
		},
	}
	flag.Add(cmd)
	flags.Yes(cmd, &yes)
	return cmd
}
