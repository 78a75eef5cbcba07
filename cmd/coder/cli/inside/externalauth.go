package inside

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/agent/login"
	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/internal/fault"
)

func externalAuthCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "external-auth",
		Short:   "Use your logins at other services, inside a workspace",
		Example: "  coder external-auth access-token github",
		Args:    cobra.NoArgs,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "access-token ID",
		Short: "Print your access token for a service",
		Long: `Print your access token for a service of the server's configuration, renewed if its time is nearly over. When you have not linked an
account there, the address of the page where you can is printed instead.

Exit codes: 0 the token is on standard output, 1 the address is, or there was an error, which is on standard error.`,
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
		return fault.New(fault.NotFound, "the server knows no login %q", id).WithDetail("its operator configures them")
	case answer.Token == "":
		fmt.Fprintln(g.Streams().Out, answer.Page)
		return &exit.Error{Code: exit.Failed}
	}
	_, err = fmt.Fprintln(g.Streams().Out, answer.Secret().Reveal())
	return err
}
