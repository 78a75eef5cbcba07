package account

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func usersCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "users", Aliases: []string{"user"}, Short: "Manage users", Example: "  coder users create --username grace --email grace@example.com"}
	cmd.AddCommand(usersCreateCmd(g), usersListCmd(g), usersExportCmd(g), usersShowCmd(g), oidcClaimsCmd(g),
		usersStatusCmd(g, "suspend"), usersStatusCmd(g, "activate"),
		usersDeleteCmd(g), usersRolesCmd(g), userStatusCountsCmd(g))
	return cmd
}

func usersCreateCmd(g *global.Flags) *cobra.Command {
	var req sdk.CreateUserRequest
	var org organization.Flag
	var noLogin bool
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Create a user",
		Example: `  coder users create --username grace --email grace@example.com --password "$PASSWORD"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if noLogin {
				if req.LoginType != "" && req.LoginType != sdk.LoginNone {
					return fault.New(fault.Invalid, "--disable-login cannot be combined with --login-type %s",
						req.LoginType)
				}
				req.LoginType = sdk.LoginNone
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			for _, field := range []struct {
				value *string
				flag  string
				q     tty.Question
			}{
				{&req.Username, "username", tty.Question{Text: "Username", Check: checkUsername}},
				{&req.Email, "email", tty.Question{Text: "Email", Check: checkEmail}},
				{&req.Password, "password", tty.Question{Text: "Password", Secret: true}},
			} {
				if *field.value != "" || field.flag == "password" && req.LoginType == sdk.LoginNone ||
					field.flag != "username" && req.ServiceAccount {
					continue
				}
				*field.value, err = g.Streams().Ask(cmd.Context(), field.q)
				if errors.Is(err, tty.ErrNotTerminal) {
					return exit.Try(fault.New(fault.Invalid, "--%s is missing", field.flag),
						"%s --username NAME --email ADDRESS --password PASSWORD", cmd.CommandPath())
				}
				if err != nil {
					return err
				}
			}
			if org.Given() {
				o, err := org.Find(cmd.Context(), client)
				if err != nil {
					return err
				}
				req.OrganizationIDs = []uuid.UUID{o.ID}
			}
			user, err := client.CreateUser(cmd.Context(), req)
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The user %s has been created.\n", user.Username)
			return nil
		},
	}
	f := cmd.Flags()
	org.Add(cmd)
	f.Lookup("org").Usage = "name or id of the organization that the user joins (default the default one)"
	f.StringVarP(&req.Username, "username", "u", "", "user name")
	f.StringVarP(&req.Email, "email", "e", "", "e-mail address")
	f.StringVarP(&req.Name, "full-name", "n", "", "full name")
	f.StringVarP(&req.Password, "password", "p", "", "password")
	f.BoolVar(&req.ServiceAccount, "service-account", false,
		"create an account of a program, which acts with tokens and has neither email address nor password")
	f.StringVar((*string)(&req.LoginType), "login-type", "",
		"how the user signs in: password, oidc, github, or none for users with tokens only (default password)")
	f.BoolVar(&noLogin, "disable-login", false, "older name of --login-type none")
	f.Lookup("disable-login").Hidden = true
	return cmd
}

var userColumns = []output.Column[sdk.User]{
	output.Col("username", func(u sdk.User) string { return u.Username }),
	output.Col("email", func(u sdk.User) string { return u.Email }),
	output.Col("name", func(u sdk.User) string { return u.Name }),
	output.Col("roles", func(u sdk.User) string { return roleNames(u.Roles) }),
	output.Col("status", func(u sdk.User) string { return string(u.Status) }),
	output.Col("last seen", func(u sdk.User) string { return output.AgoPtr(u.LastSeenAt) }),
	output.Col("created at", func(u sdk.User) string { return output.Ago(u.CreatedAt) }),
	output.Col("updated at", func(u sdk.User) string { return output.Ago(u.UpdatedAt) }),
	output.Col("id", func(u sdk.User) string { return u.ID.String() }),
}

// userJSON is a user with the names of their organizations, which Coder's command line shows too. A user who has never
// been seen has a zero time.
type userJSON struct {
	sdk.User
	LastSeenAt    time.Time `json:"last_seen_at"`
	Organizations []string  `json:"organization_names"`
}

func roleNames(roles []sdk.Role) string {
	names := []string{}
	for _, r := range roles {
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return "member"
	}
	return strings.Join(names, ",")
}

func usersListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.User]{Columns: userColumns, Initial: []string{"username", "email", "roles", "status", "created at"}}
	var search, sort string
	var github int64
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List users",
		Example: `  coder users list -o json
  coder users list --sort seen`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("github-user-id") {
				search = strings.TrimSpace(fmt.Sprintf("%s github_com_user_id:%d", search, github))
			}
			users, err := listUsers(cmd.Context(), client, sdk.UsersQuery{
				Q: search, Sort: sdk.UserOrder(sort),
			}, math.MaxInt)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, users)
		},
	}
	out.Flags(cmd)
	cmd.Flags().StringVar(&search, "search", "",
		"filter, such as status:active, role:auditor, login_type:oidc or organization:east")
	cmd.Flags().StringVar(&sort, "sort", "", "order: username, seen or created (default: username)")
	cmd.Flags().Int64Var(&github, "github-user-id", 0, "show only the user with this id at github.com")
	return cmd
}

func usersExportCmd(g *global.Flags) *cobra.Command {
	var query sdk.UsersQuery
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export users as CSV",
		Long: `Export users as CSV, with their roles, organizations and when they were last seen. A cell that a spreadsheet would run as a formula begins with
a single quote.`,
		Example: `  coder users export > users.csv
  coder users export --search "organization:east last_seen_before:2030-01-01" > idle.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			return client.ExportUsers(cmd.Context(), g.Streams().Out, query)
		},
	}
	cmd.Flags().StringVar(&query.Q, "search", "", "filter as in coder users list")
	cmd.Flags().StringVar((*string)(&query.Sort), "sort", "", "order: username, seen or created (default: username)")
	return cmd
}

// listUsers reads pages of users until it has all, or most of them.
func listUsers(ctx context.Context, client *sdk.Client, query sdk.UsersQuery, most int) ([]sdk.User, error) {
	query.Limit = 100 // the server's own bound
	var users []sdk.User
	for {
		query.Offset = len(users)
		page, err := client.Users(ctx, query)
		if err != nil {
			return nil, err
		}
		users = append(users, page.Users...)
		if len(page.Users) == 0 || len(users) >= min(page.Count, most) {
			return users, nil
		}
	}
}

// findUser returns the named user. The error for an unknown one names the user that is spelled almost like that.
func findUser(ctx context.Context, client *sdk.Client, name string) (sdk.User, error) {
	user, err := client.User(ctx, name)
	if fault.CodeOf(err) != fault.NotFound {
		return user, err
	}
	const most = 1000 // among more users, a name spelled alike means little
	list, listErr := listUsers(ctx, client, sdk.UsersQuery{}, most)
	if listErr != nil {
		return user, err
	}
	var names []string
	for _, u := range list {
		names = append(names, u.Username)
	}
	if near := nearest.To(name, names); near != "" {
		return user, exit.Try(err, "Did you mean %s? List users with: coder users list", near)
	}
	return user, exit.Try(err, "coder users list")
}

func usersShowCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.User]{Columns: userColumns}
	cmd := &cobra.Command{
		Use:     "show {user|me}",
		Short:   "Show a user",
		Example: `  coder users show me`,
		Args:    flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			user, err := findUser(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if out.Format == "json" {
				shown := userJSON{User: user, Organizations: []string{}}
				if user.LastSeenAt != nil {
					shown.LastSeenAt = *user.LastSeenAt
				}
				orgs, err := client.UserOrganizations(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				for _, o := range orgs {
					shown.Organizations = append(shown.Organizations, o.Name)
				}
				return output.JSON(g.Streams().Out, shown)
			}
			return out.Print(g.Streams().Out, []sdk.User{user})
		},
	}
	out.Flags(cmd)
	return cmd
}

func usersStatusCmd(g *global.Flags, verb string) *cobra.Command {
	var yes bool
	out := output.List[sdk.User]{Format: "table", Columns: userColumns, Initial: []string{"username", "email", "created at", "status"}}
	cmd := &cobra.Command{
		Use: verb + " USER",
		Short: map[string]string{
			"suspend": "Suspend a user without deleting anything", "activate": "Reactivate a suspended user",
		}[verb],
		Example: "  coder users " + verb + " grace",
		Args:    flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			user, err := findUser(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if len(out.Chosen) > 0 {
				if err := out.Print(g.Streams().Out, []sdk.User{user}); err != nil {
					return err
				}
			}
			if err := g.Confirm(cmd, yes || verb == "activate", "Suspend "+args[0]+"?", false); err != nil {
				return err
			}
			change := client.ActivateUser
			if verb == "suspend" {
				change = client.SuspendUser
			}
			if user, err = change(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The user %s is %s.\n", user.Username, user.Status)
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	cmd.Flags().StringSliceVarP(&out.Chosen, "column", "c", nil, "columns of the user to print before the change")
	return cmd
}

func usersDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete USER",
		Aliases: []string{"rm"},
		Short:   "Delete a user who has no workspaces",
		Example: `  coder users delete grace`,
		Args:    flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if _, err := findUser(cmd.Context(), client, args[0]); err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, "Delete "+args[0]+"?", false); err != nil {
				return err
			}
			if err := client.DeleteUser(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The user %s has been deleted.\n", args[0])
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}

func usersRolesCmd(g *global.Flags) *cobra.Command {
	var roles []string
	var yes bool
	cmd := &cobra.Command{
		Use:     "edit-roles USER",
		Short:   "Replace a user's roles",
		Example: `  coder users edit-roles grace --roles template-admin`,
		Args:    flags.Argument("user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("roles") {
				return exit.Try(fault.New(fault.Invalid, "--roles is missing"), "%s %s --roles template-admin",
					cmd.CommandPath(), shell.Word(args[0]))
			}
			// Every user is a "member": it is not a role to assign.
			roles = slices.DeleteFunc(roles, func(r string) bool { return r == "member" || r == "" })
			if _, err := findUser(cmd.Context(), client, args[0]); err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, fmt.Sprintf("Set the roles of %s to %q?", args[0], roles), true); err != nil {
				return err
			}
			user, err := client.UpdateUserRoles(cmd.Context(), args[0], sdk.UpdateRolesRequest{Roles: roles})
			if err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "The roles of %s are now: %s.\n", user.Username, roleNames(user.Roles))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&roles, "roles", nil,
		"roles separated by commas: owner, user-admin, template-admin, auditor; empty for none")
	flags.Yes(cmd, &yes)
	return cmd
}
