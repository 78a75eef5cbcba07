package inside

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func externalAuthCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "external-auth",
		Short:   "Use your logins at other services inside a workspace",
		Example: "  coder external-auth access-token github",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "access-token ID",
		Short: "Print your access token for a service",
		Long: `Print your access token for a service that the server is configured with, renewed if it is about to expire. If you have not linked an
account, the command prints the URL of the page where you can.

Exit codes: 0 printed the token; 1 printed the URL, or failed with an error on standard error.`,
		Example: `  coder external-auth access-token github
  if TOKEN=$(coder external-auth access-token github); then curl -H "Authorization: Bearer $TOKEN" https://api.github.com/user; else echo "Open $TOKEN"; fi`,
		Args: flags.Argument("id"),
		RunE: func(cmd *cobra.Command, args []string) error { return runAccessToken(cmd.Context(), g, args[0]) },
	})
	return cmd
}

func runAccessToken(ctx context.Context, g *global.Flags, id string) error {
	answer, err := askLogin(ctx, login.Request{Provider: id})
	switch {
	case err != nil:
		return err
	case answer.Unknown:
		return fault.New(fault.NotFound, "the server has no login %q", id).
			WithDetail("the operator of the server configures logins")
	case answer.Token == "":
		fmt.Fprintln(g.Streams().Out, answer.Page)
		return &exit.Error{Code: exit.Failed}
	}
	_, err = fmt.Fprintln(g.Streams().Out, answer.Secret().Reveal())
	return err
}
