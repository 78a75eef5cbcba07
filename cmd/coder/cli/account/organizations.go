package account

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func organizationsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "organizations", Aliases: []string{"organization", "org", "orgs"},
		Short: "Manage organizations, their members and roles",
		Long: `Manage organizations, their members and roles. An organization owns templates, workspaces, groups, provisioners and roles of its own.
Commands that need one take --org, or CODER_ORGANIZATION; without it they use your only organization, or else the default one.`,
		Example: "  coder organizations create east\n  coder organizations members add ann --org east",
	}
	cmd.AddCommand(orgListCmd(g), orgShowCmd(g), orgCreateCmd(g), orgEditCmd(g), orgDeleteCmd(g), orgMembersCmd(g),
		orgInvitationsCmd(g), orgRolesCmd(g), orgSettingsCmd(g))
	return cmd
}

var orgColumns = []output.Column[sdk.Organization]{
	output.Col("name", func(o sdk.Organization) string { return o.Name }),
	output.Col("display name", func(o sdk.Organization) string { return o.DisplayName }),
	output.Col("id", func(o sdk.Organization) string { return o.ID.String() }),
	output.Col("default", func(o sdk.Organization) string { return strconv.FormatBool(o.IsDefault) }),
	output.Col("description", func(o sdk.Organization) string { return o.Description }),
	output.Col("icon", func(o sdk.Organization) string { return o.Icon }),
	output.Col("created at", func(o sdk.Organization) string { return output.Ago(o.CreatedAt) }),
	output.Col("updated at", func(o sdk.Organization) string { return output.Ago(o.UpdatedAt) }),
}

func orgList() output.List[sdk.Organization] {
	return output.List[sdk.Organization]{Columns: orgColumns, Initial: []string{"name", "display name", "id", "default"}}
}

func orgListCmd(g *global.Flags) *cobra.Command {
	out := orgList()
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List organizations",
		Long:    "List the organizations that you can see: those of which you are a member. Owners, auditors and admins of the deployment see all.",
		Example: `  coder organizations list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			all, err := client.Organizations(cmd.Context())
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, all)
		},
	}
	out.Flags(cmd)
	return cmd
}

// The words that show takes instead of a name, as other servers' command lines do.
const (
	orgCurrent = "current"
	orgMine    = "me"
)

func orgShowCmd(g *global.Flags) *cobra.Command {
	out := orgList()
	var flag organization.Flag
	var onlyID bool
	cmd := &cobra.Command{
		Use:   "show [current|me|NAME]",
		Short: "Show an organization",
		Long: `Show an organization. "current" is the one that commands use here: of --org, your only one, or the default one. "me" lists those of
which you are a member.`,
		Example: "  coder organizations show\n  coder organizations show east --only-id",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			var found []sdk.Organization
			switch {
			case len(args) == 0 || args[0] == orgCurrent:
				found = make([]sdk.Organization, 1)
				found[0], err = flag.Find(ctx, client)
			case args[0] == orgMine:
				found, err = client.UserOrganizations(ctx, sdk.Me)
			default:
				found = make([]sdk.Organization, 1)
				found[0], err = organization.Named(ctx, client, args[0])
			}
			if err != nil {
				return err
			}
			if !onlyID {
				return out.Print(g.Streams().Out, found)
			}
			for _, o := range found {
				if _, err := fmt.Fprintln(g.Streams().Out, o.ID); err != nil {
					return err
				}
			}
			return nil
		},
	}
	out.Flags(cmd)
	flag.Add(cmd)
	cmd.Flags().BoolVar(&onlyID, "only-id", false, "print only the id")
	cmd.MarkFlagsMutuallyExclusive("only-id", "output")
	return cmd
}

func orgCreateCmd(g *global.Flags) *cobra.Command {
	var req sdk.CreateOrganizationRequest
	var yes bool
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an organization",
		Long:    "Create an organization. You become its member and administrator.",
		Example: `  coder organizations create east --display-name "Far East"`,
		Args:    flags.Argument("organization's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			req.Name = args[0]
			if g.Streams().InTTY { // without a terminal the arguments are explicit enough
				if err := g.Confirm(cmd, yes, "Create the organization "+req.Name+"?", true); err != nil {
					return err
				}
			}
			org, err := client.CreateOrganization(cmd.Context(), req)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Created the organization %s. Next: coder organizations members add USER --org %s\n", org.Name, shell.Word(org.Name))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.DisplayName, "display-name", "", "name shown to users (default the name)")
	f.StringVar(&req.Description, "description", "", "description")
	f.StringVar(&req.Icon, "icon", "", "URL of an icon")
	flags.Yes(cmd, &yes)
	return cmd
}

func orgEditCmd(g *global.Flags) *cobra.Command {
	var req sdk.UpdateOrganizationRequest
	var description, icon string
	cmd := &cobra.Command{
		Use:     "edit NAME",
		Short:   "Edit an organization",
		Example: `  coder organizations edit east --name orient --description "Teams east of the river"`,
		Args:    flags.Argument("organization"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			if !given("name") && !given("display-name") && !given("description") && !given("icon") {
				return exit.Try(fault.New(fault.Invalid, "no changes given"), "coder organizations edit --help")
			}
			for flag, text := range map[string]string{"name": req.Name, "display-name": req.DisplayName} {
				if given(flag) && text == "" {
					return fault.New(fault.Invalid, "--%s cannot be empty", flag)
				}
			}
			if given("description") {
				req.Description = &description
			}
			if given("icon") {
				req.Icon = &icon
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := organization.Named(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if org, err = client.UpdateOrganization(cmd.Context(), org.ID.String(), req); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Updated the organization %s.\n", org.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Name, "name", "", "new name")
	f.StringVar(&req.DisplayName, "display-name", "", "name shown to users")
	f.StringVar(&description, "description", "", "description")
	f.StringVar(&icon, "icon", "", "URL of an icon")
	return cmd
}

func orgDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Aliases: []string{"rm"},
		Short:   "Delete an organization that is no longer used",
		Long: `Delete an organization with its memberships, groups and custom roles. The server refuses while templates, workspaces, provisioner keys or
connected provisioners belong to it, and names them. The default organization cannot be deleted.`,
		Example: `  coder organizations delete east`,
		Args:    flags.Argument("organization"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			org, err := organization.Named(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete the organization "+org.Name+"? Its members lose their roles and groups.", false); err != nil {
				return err
			}
			if err := client.DeleteOrganization(cmd.Context(), org.ID.String()); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The organization %s has been deleted.\n", org.Name)
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
