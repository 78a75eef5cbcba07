package account

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func tokensCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "tokens", Aliases: []string{"token"}, Short: "Manage tokens for programs that act as you", Example: "  coder tokens create --name ci --lifetime 30d --scope workspace:read"}
	cmd.AddCommand(tokensCreateCmd(g), tokensListCmd(g), tokensViewCmd(g), tokensRemoveCmd(g))
	return cmd
}

func tokensCreateCmd(g *global.Flags) *cobra.Command {
	var name, lifetime, user string
	var scopes, allow []string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a token and print it",
		Long: `Create a token and print it. It cannot be read again.

Without --scope and --allow the token may do everything that you may do. With --scope it may only do what a scope names, such as
workspace:read, workspace:start, template:* or application_connect; an unknown scope is refused with the scopes of its type. With --allow it
reaches only the named objects: workspace:ID, template:ID, or all of a type, such as template:*. Every token can read your account's name and email.`,
		Example: `  coder tokens create --name ci --lifetime 30d
  coder tokens create --name watcher --scope workspace:read
  coder tokens create --name door --scope workspace:ssh --scope workspace:read --allow workspace:WORKSPACE-ID`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			d, err := flags.ParseDuration(lifetime)
			if err != nil {
				return err
			}
			if err := cmp.Or(notEmpty(cmd, "scope", scopes), notEmpty(cmd, "allow", allow)); err != nil {
				return err
			}
			key, err := client.CreateToken(cmd.Context(), user, sdk.CreateTokenRequest{
				TokenName: name, Lifetime: d, Scopes: scopes, AllowList: allow,
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams().Out, key.Key)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&name, "name", "n", "", "name of the token")
	f.StringVar(&lifetime, "lifetime", "", "lifetime of the token, such as 30d or 12h (default the server's)")
	f.StringSliceVar(&scopes, "scope", nil,
		"what the token may do, such as workspace:read; may be repeated (default everything)")
	f.StringSliceVar(&allow, "allow", nil,
		"object that the token reaches, such as workspace:ID; may be repeated (default all)")
	f.StringVarP(&user, "user", "u", sdk.Me,
		"account of the token; for owners of the server, one that does not sign in, such as a service account")
	return cmd
}

// notEmpty refuses a limit that is given but empty: a script with an unset variable must not get a token without
// limits.
func notEmpty(cmd *cobra.Command, flag string, values []string) error {
	if !cmd.Flags().Changed(flag) || len(values) > 0 {
		return nil
	}
	return exit.Try(fault.New(fault.Invalid, "--%s is empty, and would not limit the token", flag),
		"Name what the token may do, or leave out --%s", flag)
}

// tokenList prints tokens.
func tokenList() output.List[sdk.APIKey] {
	return output.List[sdk.APIKey]{Columns: []output.Column[sdk.APIKey]{
		output.Col("id", func(k sdk.APIKey) string { return k.ID }),
		output.Col("name", func(k sdk.APIKey) string { return k.TokenName }),
		output.Col("scopes", func(k sdk.APIKey) string { return strings.Join(k.Scopes, ", ") }),
		output.Col("allow list", func(k sdk.APIKey) string { return strings.Join(k.AllowList, ", ") }),
		output.Col("last used", func(k sdk.APIKey) string { return output.Ago(k.LastUsed) }),
		output.Col("expires at", func(k sdk.APIKey) string { return k.ExpiresAt.Local().Format("2006-01-02 15:04") }),
		output.Col("created at", func(k sdk.APIKey) string { return output.Ago(k.CreatedAt) }),
		output.Col("owner", func(k sdk.APIKey) string { return k.Username }),
	}, Initial: []string{"id", "name", "scopes", "allow list", "last used", "expires at", "created at"}}
}

func tokensListCmd(g *global.Flags) *cobra.Command {
	out := tokenList()
	var all, expired bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tokens",
		Example: `  coder tokens list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			keys, err := client.Tokens(cmd.Context(), sdk.Me, all, expired)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, keys)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include all users' tokens; for owners of the server")
	cmd.Flags().BoolVar(&expired, "include-expired", false, "include tokens that have expired")
	out.Flags(cmd)
	return cmd
}

func tokensViewCmd(g *global.Flags) *cobra.Command {
	out := tokenList()
	var user string
	cmd := &cobra.Command{
		Use:     "view {name|id}",
		Short:   "Show a token",
		Example: `  coder tokens view ci`,
		Args:    flags.Argument("token's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			id, err := tokenID(cmd, client, user, args[0])
			if err != nil {
				return err
			}
			key, err := client.APIKey(cmd.Context(), user, id)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, []sdk.APIKey{key})
		},
	}
	ownerFlag(cmd, &user)
	out.Flags(cmd)
	return cmd
}

// ownerFlag adds the flag that names whose token a command is about.
func ownerFlag(cmd *cobra.Command, user *string) {
	cmd.Flags().StringVarP(user, "user", "u", sdk.Me, "owner of the token; for owners of the server")
}

// tokenID returns the id of a token of the user's, which its name, its id or the whole token names.
func tokenID(cmd *cobra.Command, client *sdk.Client, user, reference string) (string, error) {
	keys, err := client.Tokens(cmd.Context(), user, false, true)
	if err != nil {
		return "", err
	}
	for _, key := range keys {
		if key.TokenName == reference {
			return key.ID, nil
		}
	}
	// The public half is enough. Users should not paste the rest.
	id, _, _ := strings.Cut(reference, "-")
	return id, nil
}

func tokensRemoveCmd(g *global.Flags) *cobra.Command {
	var erase bool
	var user string
	cmd := &cobra.Command{
		Use:     "remove {name|id}",
		Aliases: []string{"rm", "delete"},
		Short:   "Revoke a token",
		Long:    `Revoke a token. It stays in the list of expired tokens unless --delete is set. Its name is free again.`,
		Example: `  coder tokens remove ci
  coder tokens remove ci --user grace`,
		Args: flags.Argument("token's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			id, err := tokenID(cmd, client, user, args[0])
			if err != nil {
				return err
			}
			revoke, done := client.ExpireAPIKey, "Revoked"
			if erase {
				revoke, done = client.DeleteAPIKey, "Deleted"
			}
			if err := revoke(cmd.Context(), user, id); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "%s the token %s.\n", done, id)
			return nil
		},
	}
	ownerFlag(cmd, &user)
	cmd.Flags().BoolVar(&erase, "delete", false, "delete the token instead of keeping it in the list of expired tokens")
	return cmd
}
