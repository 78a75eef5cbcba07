package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/agent/login"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
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

const (
	loginLook = 2 * time.Second  // how often it is looked whether the user has linked an account
	loginWait = 15 * time.Minute // and how long
)

// awaitLogins sees to it that the user has linked what a template version needs: on a terminal it says where to, and waits for it.
func (a *app) awaitLogins(ctx context.Context, client *sdk.Client, version uuid.UUID) error {
	asked, err := client.TemplateVersionExternalAuth(ctx, version)
	if err != nil {
		return err
	}
	missing := missingLogins(asked)
	if len(missing) == 0 {
		return nil
	}
	for _, m := range missing {
		if m.Type == "" {
			return Try(fault.New(fault.Conflict, "the template needs the login %q, which the server does not know", m.ID).WithDetail("its operator configures them"), "coder templates list")
		}
	}
	if s := a.streams(); !s.InTTY || !s.ErrTTY {
		names, pages := make([]string, len(missing)), make([]string, len(missing))
		for i, m := range missing {
			names[i], pages[i] = m.DisplayName, m.AuthenticateURL
		}
		return Try(fault.New(fault.Conflict, "the template needs a login with %s", strings.Join(names, " and ")).
			WithDetail("open %s and link the account", strings.Join(pages, " and ")), "the same again after that")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginWait, fault.New(fault.Conflict, "no account was linked in %s", loginWait))
	defer cancel()
	for _, m := range missing {
		fmt.Fprintf(a.streams().Err, "The template needs a login with %s. Open this and link your account:\n  %s\n", m.DisplayName, m.AuthenticateURL)
	}
	progress := a.streams().Progress()
	done := false
	defer func() { progress.Stop(done) }()
	tick := time.NewTicker(loginLook)
	defer tick.Stop()
	for len(missing) > 0 {
		progress.Stage("Waiting for the login with " + missing[0].DisplayName)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if asked, err = client.TemplateVersionExternalAuth(ctx, version); err != nil {
			return err
		}
		missing = missingLogins(asked)
	}
	done = true
	return nil
}

// missingLogins are those that the template cannot do without.
func missingLogins(asked []sdk.TemplateVersionExternalAuth) (missing []sdk.TemplateVersionExternalAuth) {
	for _, a := range asked {
		if !a.Optional && !a.Authenticated {
			missing = append(missing, a)
		}
	}
	return missing
}
