package workspaces

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

const (
	loginLook = 2 * time.Second  // interval between two checks whether the user has linked an account
	loginWait = 15 * time.Minute // how long to check
)

// awaitLogins checks that the user has linked the accounts that a template version needs. On a terminal it prints where
// to link them, and waits.
func awaitLogins(ctx context.Context, client *sdk.Client, s *tty.Streams, version uuid.UUID) error {
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
			return exit.Try(fault.New(fault.Conflict, "the template needs the login %q, which the server does not offer", m.ID).WithDetail("the operator of the server configures logins"), "coder templates list")
		}
	}
	if !s.InTTY || !s.ErrTTY {
		names, pages := make([]string, len(missing)), make([]string, len(missing))
		for i, m := range missing {
			names[i], pages[i] = m.DisplayName, m.AuthenticateURL
		}
		return exit.Try(fault.New(fault.Conflict, "the template needs a login with %s", strings.Join(names, " and ")).
			WithDetail("open %s and link the account",
				strings.Join(pages, " and ")), "Run the command again when you have.")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginWait,
		fault.New(fault.Conflict, "no account was linked in %s", loginWait))
	defer cancel()
	for _, m := range missing {
		fmt.Fprintf(s.Err, "The template needs a login with %s. Open this and link your account:\n  %s\n",
			m.DisplayName, m.AuthenticateURL)
	}
	progress := s.Progress()
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

// missingLogins returns the required logins without a linked account.
func missingLogins(asked []sdk.TemplateVersionExternalAuth) (missing []sdk.TemplateVersionExternalAuth) {
	for _, a := range asked {
		if !a.Optional && !a.Authenticated {
			missing = append(missing, a)
		}
	}
	return missing
}
