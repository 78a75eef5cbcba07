package account

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

type publicKeyOptions struct{ reset, yes bool }

func publicKeyCmd(g *global.Flags) *cobra.Command {
	var opts publicKeyOptions
	cmd := &cobra.Command{
		Use:     "publickey",
		Aliases: []string{"pubkey"},
		Short:   "Print the public key that workspaces use for git",
		Example: `  coder publickey`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPublicKey(g, cmd, opts) },
	}
	cmd.Flags().BoolVar(&opts.reset, "reset", false, "create a new key pair first")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runPublicKey(g *global.Flags, cmd *cobra.Command, opts publicKeyOptions) error {
	client, err := g.Client(cmd.Context())
	if err != nil {
		return err
	}
	read := client.GitSSHKey
	if opts.reset {
		if err := g.Confirm(cmd, opts.yes, "Create a new key? You must then register it at your Git hosts.", false); err != nil {
			return err
		}
		read = client.RegenerateGitSSHKey
	}
	key, err := read(cmd.Context(), sdk.Me)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(g.Streams().Out, strings.TrimSpace(key.PublicKey))
	return err
}
