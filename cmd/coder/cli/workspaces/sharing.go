package workspaces

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func sharingCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sharing",
		Short: "Share a workspace with users and groups",
		Long: `Share a workspace with users and groups of its organization. With the role use they connect to it; with the role admin they also
start, stop and share it. All of them act as the workspace's own account: they read its files, and can use the credentials of its owner that
are in it.`,
		Example: "  coder sharing add dev --user bob --group developers:admin\n  coder sharing status dev",
	}
	cmd.AddCommand(sharingAddCmd(g), sharingRemoveCmd(g), sharingStatusCmd(g))
	return cmd
}

// principals are the flags that name users and groups.
type principals struct{ users, groups []string }

func (p *principals) flags(cmd *cobra.Command, form string) {
	cmd.Flags().StringSliceVar(&p.users, "user", nil, "user, by name or id"+form+"; may be repeated")
	cmd.Flags().StringSliceVar(&p.groups, "group", nil, "group, by name or id"+form+"; may be repeated")
}

// change returns the request that gives the users and groups their roles. fixed is the role of all of them, "" to end
// the sharing; nil means that each names its own, use by default.
func (p *principals) change(
	ctx context.Context, client *sdk.Client, organization string, fixed *string,
) (sdk.UpdateWorkspaceACLRequest, error) {
	req := sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{}, GroupRoles: map[string]string{}}
	if len(p.users)+len(p.groups) == 0 {
		return req, exit.Try(fault.New(fault.Invalid, "no user and no group given"), "coder sharing add dev --user bob")
	}
	split := func(text string) (name, role string) {
		if fixed != nil {
			return text, *fixed
		}
		name, role = text, sdk.RoleUse
		if at := strings.LastIndex(text, ":"); at >= 0 && (text[at+1:] == sdk.RoleUse || text[at+1:] == sdk.RoleAdmin) {
			name, role = text[:at], text[at+1:]
		}
		return name, role
	}
	for _, text := range p.users {
		name, role := split(text)
		m, err := client.OrganizationMember(ctx, organization, name)
		if err != nil {
			return req, err
		}
		req.UserRoles[m.UserID.String()] = role
	}
	for _, text := range p.groups {
		name, role := split(text)
		group, err := client.GroupByName(ctx, organization, name)
		if err != nil {
			return req, exit.Try(err, "coder groups list")
		}
		req.GroupRoles[group.ID.String()] = role
	}
	return req, nil
}

func sharingAddCmd(g *global.Flags) *cobra.Command {
	var with principals
	cmd := &cobra.Command{
		Use:     "add WORKSPACE",
		Aliases: []string{"share"},
		Short:   "Share a workspace, or change a role",
		Example: "  coder sharing add dev --user bob,eve:admin\n  coder sharing add dev --group Everyone",
		Args:    flags.Argument("workspace"),
		RunE:    func(cmd *cobra.Command, args []string) error { return share(g, cmd, args[0], with, nil) },
	}
	with.flags(cmd, ", with :use (default) or :admin")
	return cmd
}

func sharingRemoveCmd(g *global.Flags) *cobra.Command {
	var with principals
	cmd := &cobra.Command{
		Use:     "remove WORKSPACE",
		Aliases: []string{"rm"},
		Short:   "Stop sharing a workspace, and end open connections",
		Example: "  coder sharing remove dev --user bob",
		Args:    flags.Argument("workspace"),
		RunE:    func(cmd *cobra.Command, args []string) error { return share(g, cmd, args[0], with, new(string)) },
	}
	with.flags(cmd, "")
	return cmd
}

func share(g *global.Flags, cmd *cobra.Command, name string, with principals, role *string) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	ws, _, err := target.Find(cmd.Context(), client, name)
	if err != nil {
		return err
	}
	req, err := with.change(cmd.Context(), client, ws.OrganizationID.String(), role)
	if err != nil {
		return err
	}
	if err := client.UpdateWorkspaceACL(cmd.Context(), ws.ID, req); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Updated the sharing of %s/%s.\n", ws.OwnerName, ws.Name)
	return nil
}

// shared is a row of the status.
type shared struct {
	Kind string `json:"kind"` // user, group
	Name string `json:"name"`
	Role string `json:"role"`
}

func sharingStatusCmd(g *global.Flags) *cobra.Command {
	out := output.List[shared]{Columns: []output.Column[shared]{
		output.Col("kind", func(x shared) string { return x.Kind }),
		output.Col("name", func(x shared) string { return x.Name }),
		output.Col("role", func(x shared) string { return x.Role }),
	}}
	cmd := &cobra.Command{
		Use:     "status WORKSPACE",
		Short:   "Show who a workspace is shared with",
		Example: "  coder sharing status dev",
		Args:    flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			ws, _, err := target.Find(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			acl, err := client.WorkspaceACL(cmd.Context(), ws.ID)
			if err != nil {
				return err
			}
			rows := []shared{}
			for _, u := range acl.Users {
				rows = append(rows, shared{"user", u.Username, u.Role})
			}
			for _, x := range acl.Groups {
				rows = append(rows, shared{"group", x.Name, x.Role})
			}
			return out.Print(g.Streams().Out, rows)
		},
	}
	out.Flags(cmd)
	return cmd
}
