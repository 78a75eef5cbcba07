package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/organization"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// syncKind is one kind of settings that say which memberships follow from the claims of the identity provider.
type syncKind struct {
	name    string
	aliases []string
	what    string
	site    bool // the settings are the deployment's: there is no --org
	show    func(ctx context.Context, client *sdk.Client, org string) (any, error)
	set     func(ctx context.Context, client *sdk.Client, org string, in io.Reader) (any, error)
	example string
}

var syncKinds = []syncKind{
	{
		name: "group-sync", aliases: []string{"groupsync"}, what: "groups of an organization that follow from the identity provider's claims",
		show: func(ctx context.Context, c *sdk.Client, org string) (any, error) { return c.GroupSync(ctx, org) },
		set: func(ctx context.Context, c *sdk.Client, org string, in io.Reader) (any, error) {
			return setSync(ctx, c, org, in, (*sdk.Client).SetGroupSync)
		},
		example: `{"field": "groups", "auto_create_missing_groups": true}`,
	},
	{
		name: "role-sync", aliases: []string{"rolesync"}, what: "roles in an organization that follow from the identity provider's claims",
		show: func(ctx context.Context, c *sdk.Client, org string) (any, error) { return c.RoleSync(ctx, org) },
		set: func(ctx context.Context, c *sdk.Client, org string, in io.Reader) (any, error) {
			return setSync(ctx, c, org, in, (*sdk.Client).SetRoleSync)
		},
		example: `{"field": "roles", "mapping": {"leads": ["organization-admin"]}}`,
	},
	{
		name: "organization-sync", aliases: []string{"organizationsync", "org-sync", "orgsync"}, what: "organizations that follow from the identity provider's claims", site: true,
		show: func(ctx context.Context, c *sdk.Client, _ string) (any, error) { return c.OrganizationSync(ctx) },
		set: func(ctx context.Context, c *sdk.Client, _ string, in io.Reader) (any, error) {
			return setSync(ctx, c, "", in, func(c *sdk.Client, ctx context.Context, _ string, s sdk.OrganizationSyncSettings) (sdk.OrganizationSyncSettings, error) {
				return c.SetOrganizationSync(ctx, s)
			})
		},
		example: `{"field": "teams", "organization_assign_default": true, "mapping": {"sales": ["4ad86302-94fd-4c69-b6ed-8bd8e3ba4b53"]}}`,
	},
	{
		name: "workspace-sharing", aliases: []string{"workspacesharing"}, what: "setting whether members may share workspaces and their ports; disabling it ends all present sharing",
		show: func(ctx context.Context, c *sdk.Client, org string) (any, error) { return c.WorkspaceSharing(ctx, org) },
		set: func(ctx context.Context, c *sdk.Client, org string, in io.Reader) (any, error) {
			return setSync(ctx, c, org, in, (*sdk.Client).SetWorkspaceSharing)
		},
		example: `{"sharing_disabled": false}`,
	},
}

func orgSettingsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "settings", Aliases: []string{"setting"},
		Short: "Show and set sync with the identity provider, and sharing",
		Long: `Show and set which organizations, groups and roles follow from the claims of the OpenID Connect provider. Memberships change at the next
sign-in of a user, or within ten minutes while the user has sessions.`,
		Example: "  coder organizations settings show group-sync --org east",
	}
	show := &cobra.Command{
		Use: "show", Short: "Show settings as JSON",
		Example: "  coder organizations settings show role-sync --org east",
	}
	set := &cobra.Command{
		Use: "set", Short: "Replace settings with JSON from standard input",
		Long:    `Replace settings with JSON from standard input. An empty "field" switches the sync off.`,
		Example: "  coder organizations settings set role-sync --org east <settings.json",
	}
	for _, kind := range syncKinds {
		show.AddCommand(syncCmd(g, kind, "show"))
		set.AddCommand(syncCmd(g, kind, "set"))
	}
	cmd.AddCommand(show, set)
	return cmd
}

// syncCmd returns the command that shows or sets one kind of settings.
func syncCmd(g *global.Flags, kind syncKind, verb string) *cobra.Command {
	var org organization.Flag
	cmd := &cobra.Command{
		Use: kind.name, Aliases: kind.aliases, Short: strings.ToUpper(verb[:1]) + verb[1:] + " the " + kind.what,
		Args:    cobra.NoArgs,
		Example: fmt.Sprintf("  coder organizations settings %s %s", verb, kind.name),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			client, err := g.Client(ctx)
			if err != nil {
				return err
			}
			var id string
			if !kind.site {
				found, err := org.Find(ctx, client)
				if err != nil {
					return err
				}
				id = found.ID.String()
			}
			run := kind.show
			if verb == "set" {
				run = func(ctx context.Context, client *sdk.Client, org string) (any, error) {
					return kind.set(ctx, client, org, g.Streams().In)
				}
			}
			settings, err := run(ctx, client, id)
			if bad := fault.As(err); verb == "set" && bad != nil && bad.Code == fault.Invalid {
				return exit.Try(err, "echo '%s' | %s", kind.example, cmd.CommandPath())
			}
			if err != nil {
				return err
			}
			return output.JSON(g.Streams().Out, settings)
		},
	}
	if verb == "set" {
		cmd.Example = fmt.Sprintf("  echo '%s' | coder organizations settings set %s", kind.example, kind.name)
	}
	if !kind.site {
		org.Add(cmd)
	}
	return cmd
}

// maxSettings bounds settings on standard input, in bytes.
const maxSettings = 4 << 20

// setSync replaces settings with those that it reads.
func setSync[T any](ctx context.Context, client *sdk.Client, org string, in io.Reader, set func(*sdk.Client, context.Context, string, T) (T, error)) (any, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxSettings+1))
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if len(data) > maxSettings {
		return nil, fault.New(fault.Invalid, "the settings on standard input have more than %d bytes", maxSettings)
	}
	settings, err := parseSync[T](data)
	if err != nil {
		return nil, err
	}
	return set(client, ctx, org, settings)
}

// parseSync reads settings. Unknown fields are refused, because the server would ignore them.
func parseSync[T any](data []byte) (settings T, err error) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&settings); err != nil {
		return settings, fault.New(fault.Invalid, "the settings on standard input are not valid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return settings, fault.New(fault.Invalid, "standard input contains more than the settings")
	}
	return settings, nil
}
