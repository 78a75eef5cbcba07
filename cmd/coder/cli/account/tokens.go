package account

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/internal/sdk"
)

func tokensCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{Use: "tokens", Aliases: []string{"token"}, Short: "Manage long-lived session tokens", Example: "  coder tokens create --name ci --lifetime 30d"}
	cmd.AddCommand(tokensCreateCmd(g), tokensListCmd(g), tokensRemoveCmd(g))
	return cmd
}

func tokensCreateCmd(g *global.Flags) *cobra.Command {
	var name, lifetime, user string
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Create a token and print it",
		Example: `  coder tokens create --name ci --lifetime 30d`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			d, err := flags.ParseDuration(lifetime)
			if err != nil {
				return err
			}
			key, err := client.CreateToken(cmd.Context(), user, sdk.CreateTokenRequest{TokenName: name, Lifetime: d})
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
	f.StringVarP(&user, "user", "u", sdk.Me, "owner of the token; for owners of the server")
	return cmd
}

func tokensListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.APIKey]{Columns: []output.Column[sdk.APIKey]{
		output.Col("id", func(k sdk.APIKey) string { return k.ID }),
		output.Col("name", func(k sdk.APIKey) string { return k.TokenName }),
		output.Col("last used", func(k sdk.APIKey) string { return output.Ago(k.LastUsed) }),
		output.Col("expires at", func(k sdk.APIKey) string { return k.ExpiresAt.Local().Format("2006-01-02 15:04") }),
		output.Col("created at", func(k sdk.APIKey) string { return output.Ago(k.CreatedAt) }),
		output.Col("owner", func(k sdk.APIKey) string { return k.Username }),
	}, Initial: []string{"id", "name", "last used", "expires at", "created at"}}
	var all bool
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
			keys, err := client.Tokens(cmd.Context(), sdk.Me, all)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, keys)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include all users' tokens; for owners of the server")
	out.Flags(cmd)
	return cmd
}

func tokensRemoveCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:     "remove {name|id}",
		Aliases: []string{"rm", "delete"},
		Short:   "Revoke a token",
		Example: `  coder tokens remove ci`,
		Args:    flags.Argument("token's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			id := args[0]
			keys, err := client.Tokens(cmd.Context(), sdk.Me, false)
			if err != nil {
				return err
			}
			for _, key := range keys {
				if key.TokenName == id {
					id = key.ID
				}
			}
			// The public half is enough. Users should not paste the rest.
			id, _, _ = strings.Cut(id, "-")
			if err := client.DeleteAPIKey(cmd.Context(), sdk.Me, id); err != nil {
				return err
			}
			fmt.Fprintf(g.Streams().Err, "Revoked the token %s.\n", id)
			return nil
		},
	}
}
