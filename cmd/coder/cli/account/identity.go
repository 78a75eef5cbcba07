package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func identityCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "identity", Short: "Show or rotate the keys that sign ID tokens of workspaces and builds",
		Long: `Show or rotate the keys with which the server signs ID tokens of workspaces (coder id-token) and of builds. A
template says for whom there are tokens: coder templates edit --identity-audiences.`,
		Example: `  coder identity show
  coder identity rotate`,
	}
	cmd.AddCommand(identityShowCmd(g), identityRotateCmd(g))
	return cmd
}

func identityShowCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Print the issuer of ID tokens and the ids of its keys",
		Example: `  coder identity show`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			keys, err := client.IdentityKeys(cmd.Context())
			if err != nil {
				return err
			}
			return printIdentityKeys(g, keys)
		},
	}
}

func printIdentityKeys(g *global.Flags, keys sdk.IdentityKeys) error {
	_, err := fmt.Fprintf(g.Streams().Out, "issuer:       %s\ncurrent key:  %s\nnext key:     %s\n",
		keys.Issuer, keys.CurrentKey, keys.NextKey)
	if err == nil && keys.PreviousKey != "" {
		_, err = fmt.Fprintf(g.Streams().Out, "previous key: %s\n", keys.PreviousKey)
	}
	return err
}

func identityRotateCmd(g *global.Flags) *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use: "rotate", Short: "Sign ID tokens with the next key",
		Long: `Sign ID tokens with the next key, which verifiers already know, and make a new next key. Tokens of the present key
stay valid until they expire.

With --all, replace all keys, because one may be known to others or cannot be decrypted. Tokens that were issued
before no longer count once verifiers have fetched the new keys. Give the new keys to verifiers that do not fetch them.`,
		Example: `  coder identity rotate
  coder identity rotate --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			question := "Sign ID tokens with the next key?"
			if all {
				question = "Replace all keys that sign ID tokens? Tokens that were issued before no longer count."
			}
			if err := g.Confirm(cmd, yes, question, false); err != nil {
				return err
			}
			keys, err := client.RotateIdentityKeys(cmd.Context(), sdk.RotateIdentityKeysRequest{All: all})
			if err != nil {
				return err
			}
			return printIdentityKeys(g, keys)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "replace all keys, and end the tokens that were issued before")
	flags.Yes(cmd, &yes)
	return cmd
}
