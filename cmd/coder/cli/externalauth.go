package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/agent/login"
	"github.com/codermesh/codermesh/internal/fault"
)

func (a *app) externalAuthCmd() *cobra.Command {
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
		Args: argument("id"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.accessToken(cmd.Context(), args[0]) },
	})
	return cmd
}

func (a *app) accessToken(ctx context.Context, id string) error {
	answer, err := askLogin(ctx, login.Request{Provider: id})
	switch {
	case err != nil:
		return err
	case answer.Unknown:
		return fault.New(fault.NotFound, "the server knows no login %q", id).WithDetail("its operator configures them")
	case answer.Token == "":
		fmt.Fprintln(a.streams().Out, answer.Page)
		return &ExitError{Code: exitFailed}
	}
	_, err = fmt.Fprintln(a.streams().Out, answer.Secret().Reveal())
	return err
}
