package account

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

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

// maxRoleText bounds a role on standard input, in bytes.
const maxRoleText = 1 << 20

func orgRolesCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "roles", Aliases: []string{"role"}, Short: "Manage the custom roles of an organization",
		Long: `Manage the custom roles of an organization. A custom role adds permissions on all objects of a kind in the organization, written
KIND:ACTION, such as template:update or group:*. You can only give permissions that you have.`,
		Example: "  coder organizations roles show --org east\n  coder organizations roles create deployer --permission template:create,template:update --org east",
	}
	cmd.AddCommand(orgRolesShowCmd(g), orgRolesChangeCmd(g, "create"), orgRolesChangeCmd(g, "update"),
		orgRolesDeleteCmd(g))
	return cmd
}

// permissionWords formats permissions as the flags take them.
func permissionWords(permissions []sdk.Permission) string {
	words := make([]string, len(permissions))
	for i, p := range permissions {
		words[i] = p.ResourceType + ":" + p.Action
	}
	return strings.Join(words, ",")
}

func orgRolesShowCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.AssignableRole]{Columns: []output.Column[sdk.AssignableRole]{
		output.Col("name", func(r sdk.AssignableRole) string { return r.Name }),
		output.Col("display name", func(r sdk.AssignableRole) string { return r.DisplayName }),
		output.Col("organization id", func(r sdk.AssignableRole) string { return r.OrganizationID }),
		output.Col("built in", func(r sdk.AssignableRole) string { return strconv.FormatBool(r.BuiltIn) }),
		output.Col("assignable", func(r sdk.AssignableRole) string { return strconv.FormatBool(r.Assignable) }),
		output.Col("site permissions", func(r sdk.AssignableRole) string { return permissionWords(r.SitePermissions) }),
		output.Col("organization permissions",
			func(r sdk.AssignableRole) string { return permissionWords(r.OrganizationPermissions) }),
		output.Col("user permissions", func(r sdk.AssignableRole) string { return permissionWords(r.UserPermissions) }),
	}, Initial: []string{"name", "display name", "built in", "assignable"}}
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "show [ROLE...]",
		Aliases: []string{"list", "ls"},
		Short:   "Show the roles of an organization, or those named",
		Example: "  coder organizations roles show --org east\n  coder organizations roles show deployer -c \"name,organization permissions\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				roles, err := client.OrganizationRoles(cmd.Context(), org.ID.String())
				if err != nil {
					return err
				}
				for _, name := range args {
					if !slices.ContainsFunc(roles, func(r sdk.AssignableRole) bool { return r.Name == name }) {
						return unknownRole(org, name)
					}
				}
				if len(args) > 0 {
					roles = slices.DeleteFunc(roles,
						func(r sdk.AssignableRole) bool { return !slices.Contains(args, r.Name) })
				}
				return out.Print(g.Streams().Out, roles)
			})
		},
	}
	out.Flags(cmd)
	flag.Add(cmd)
	return cmd
}

func unknownRole(org sdk.Organization, name string) error {
	return exit.Try(fault.New(fault.NotFound, "the organization %s has no role %q", org.Name, name),
		"coder organizations roles show --org %s", shell.Word(org.Name))
}

type roleOptions struct {
	org         organization.Flag
	display     string
	permissions []string
	stdin, dry  bool
}

// orgRolesChangeCmd returns create or update.
func orgRolesChangeCmd(g *global.Flags, verb string) *cobra.Command {
	var opts roleOptions
	cmd := &cobra.Command{
		Use:   verb + " [ROLE]",
		Short: map[string]string{"create": "Create a custom role", "update": "Change a custom role"}[verb],
		Long: map[string]string{
			"create": "Create a custom role.",
			"update": "Change a custom role. Members who have it get and lose permissions at once.",
		}[verb] + ` With --stdin the role is read as JSON from standard input, in the form in which
"coder organizations roles show -o json" prints one.`,
		Example: "  coder organizations roles " + verb + " deployer --display-name Deployer --permission template:create,template:update --org east\n" +
			"  coder organizations roles " + verb + " --stdin --org east <role.json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runRoleChange(g, cmd, verb, args, &opts) },
	}
	f := cmd.Flags()
	f.StringVar(&opts.display, "display-name", "", "name shown to users")
	f.StringSliceVar(&opts.permissions, "permission", nil,
		"permissions of the role, KIND:ACTION separated by commas; KIND:* for all actions")
	f.BoolVar(&opts.stdin, "stdin", false, "read the role as JSON from standard input")
	f.BoolVar(&opts.dry, "dry-run", false, "print the role as JSON and change nothing")
	opts.org.Add(cmd)
	cmd.MarkFlagsMutuallyExclusive("stdin", "permission")
	cmd.MarkFlagsMutuallyExclusive("stdin", "display-name")
	return cmd
}

func runRoleChange(g *global.Flags, cmd *cobra.Command, verb string, args []string, opts *roleOptions) error {
	given := cmd.Flags().Changed
	var req sdk.CustomRoleRequest
	switch {
	case opts.stdin:
		var err error
		if req, err = readRole(g.Streams().In, args); err != nil {
			return err
		}
	case len(args) == 0:
		return exit.Try(fault.New(fault.Invalid, "the role is missing"), "%s", cmd.UseLine())
	case !given("permission") && (verb == "create" || !given("display-name")):
		return exit.Try(fault.New(fault.Invalid, "--permission is missing"), "%s %s --permission template:update",
			cmd.CommandPath(), shell.Word(args[0]))
	default:
		req.Name, req.DisplayName = args[0], opts.display
	}
	permissions, err := parsePermissions(opts.permissions)
	if err != nil {
		return err
	}
	if !opts.stdin {
		req.OrganizationPermissions = permissions
	}
	return inOrganization(cmd.Context(), g, &opts.org, func(client *sdk.Client, org sdk.Organization) error {
		if verb == "update" {
			roles, err := client.OrganizationRoles(cmd.Context(), org.ID.String())
			if err != nil {
				return err
			}
			i := slices.IndexFunc(roles, func(r sdk.AssignableRole) bool { return r.Name == req.Name })
			if i < 0 {
				return unknownRole(org, req.Name)
			}
			if !opts.stdin && !given("display-name") {
				req.DisplayName = roles[i].DisplayName
			}
			if !opts.stdin && !given("permission") {
				req.OrganizationPermissions = roles[i].OrganizationPermissions
			}
		}
		if opts.dry {
			return output.JSON(g.Streams().Out, req)
		}
		change, done := client.CreateOrganizationRole, "Created"
		if verb == "update" {
			change, done = client.UpdateOrganizationRole, "Updated"
		}
		role, err := change(cmd.Context(), org.ID.String(), req)
		if err != nil {
			return err
		}
		fmt.Fprintf(g.Streams().Err, "%s the role %s of %s: %s\n", done, role.Name, org.Name,
			permissionWords(role.OrganizationPermissions))
		return nil
	})
}

// readRole reads a role as JSON. An argument must be its name.
func readRole(in io.Reader, args []string) (req sdk.CustomRoleRequest, err error) {
	text, err := io.ReadAll(io.LimitReader(in, maxRoleText+1))
	if err != nil {
		return req, fmt.Errorf("read standard input: %w", err)
	}
	if len(text) > maxRoleText {
		return req, fault.New(fault.TooLarge, "the role on standard input is larger than %d bytes", maxRoleText)
	}
	list := []sdk.CustomRoleRequest{{}}
	if text = bytes.TrimSpace(text); bytes.HasPrefix(text, []byte("[")) { // as "show" prints it
		err = json.Unmarshal(text, &list)
	} else {
		err = json.Unmarshal(text, &list[0])
	}
	if err == nil && len(list) != 1 {
		return req, fault.New(fault.Invalid, "standard input holds %d roles instead of one", len(list))
	}
	if err != nil {
		return req, exit.Try(fault.New(fault.Invalid, "standard input is not a role in JSON: %w", err),
			"coder organizations roles show ROLE -o json")
	}
	if req = list[0]; len(args) == 1 && req.Name == "" {
		req.Name = args[0]
	}
	switch {
	case req.Name == "":
		return req, fault.New(fault.Invalid, "the role on standard input has no name")
	case len(args) == 1 && args[0] != req.Name:
		return req, fault.New(fault.Invalid, "the role on standard input is named %q, not %q", req.Name, args[0])
	}
	return req, nil
}

func parsePermissions(words []string) ([]sdk.Permission, error) {
	permissions := []sdk.Permission{}
	for _, word := range words {
		kind, action, ok := strings.Cut(word, ":")
		if !ok || kind == "" || action == "" {
			return nil, exit.Try(fault.New(fault.Invalid, "the permission %q is not KIND:ACTION", word),
				"--permission template:update")
		}
		permissions = append(permissions, sdk.Permission{ResourceType: kind, Action: action})
	}
	return permissions, nil
}

func orgRolesDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	var flag organization.Flag
	cmd := &cobra.Command{
		Use:     "delete ROLE",
		Aliases: []string{"rm"},
		Short:   "Delete a custom role, and take it from its members",
		Example: `  coder organizations roles delete deployer --org east`,
		Args:    flags.Argument("role"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inOrganization(cmd.Context(), g, &flag, func(client *sdk.Client, org sdk.Organization) error {
				if err := g.Confirm(cmd, yes, "Delete the role "+args[0]+" of "+org.Name+" and take it from its members?", false); err != nil {
					return err
				}
				if err := client.DeleteOrganizationRole(cmd.Context(), org.ID.String(), args[0]); err != nil {
					return exit.Try(err, "coder organizations roles show --org %s", shell.Word(org.Name))
				}
				fmt.Fprintf(g.Streams().Err, "The role %s of %s has been deleted.\n", args[0], org.Name)
				return nil
			})
		},
	}
	flag.Add(cmd)
	flags.Yes(cmd, &yes)
	return cmd
}
