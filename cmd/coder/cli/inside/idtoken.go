package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func idTokenCmd(g *global.Flags) *cobra.Command {
	var audience, file string
	cmd := &cobra.Command{
		Use:   "id-token",
		Short: "Print an ID token that proves to a cloud which workspace this is",
		Long: `Print an OpenID Connect ID token of this workspace for an audience that its template allows. Clouds and vaults
verify it with the server's public keys and exchange it for credentials. It is valid for 15 minutes.

With --file, the command writes the token to a file instead, replaces it before it expires, and runs until it is
interrupted. Programs never read half a token.

Exit codes: 0 printed the token, or was interrupted; 1 failed, with an error on standard error.`,
		Example: `  coder id-token --audience https://vault.example.com
  coder id-token --audience sts.amazonaws.com --file ~/.aws/id-token &`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if audience == "" {
				return exit.Try(fault.New(fault.Invalid, "no audience given"), "coder id-token --audience AUDIENCE")
			}
			if file != "" {
				return keepIDToken(cmd.Context(), askIDToken, g.Streams().Err, audience, file)
			}
			answer, err := askIDToken(cmd.Context(), audience)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams().Out, answer.Secret().Reveal())
			return err
		},
	}
	cmd.Flags().StringVar(&audience, "audience", "", "for whom the token is, as its verifier expects")
	cmd.Flags().StringVar(&file, "file", "", "file in which to keep a valid token until interrupted")
	return cmd
}

// askIDToken asks the agent for an ID token.
func askIDToken(ctx context.Context, audience string) (login.Answer, error) {
	socket := os.Getenv(login.SocketEnv)
	if socket == "" {
		missing := fault.New(fault.Invalid, "there are no ID tokens here: $%s is not set", login.SocketEnv)
		return login.Answer{}, exit.Try(missing, "Run this inside a workspace: coder ssh WORKSPACE")
	}
	answer, err := login.Ask(ctx, socket, login.Request{Audience: audience})
	if refused, ok := errors.AsType[login.Refusal](err); ok {
		return answer, fault.New(fault.Forbidden, "the server refused the ID token: %w", refused)
	}
	if err != nil && ctx.Err() == nil {
		return answer, exit.Try(fault.New(fault.Unavailable, "cannot fetch the ID token: %w", err),
			"Try again in a moment.")
	}
	if err == nil && answer.Token == "" {
		older := fault.New(fault.Unavailable, "this workspace's agent knows no ID tokens")
		return answer, exit.Try(older, "Restart the workspace, so that it gets the server's version of the agent.")
	}
	return answer, err
}

// Bounds of the time between two tokens in a file. A clock that is wrong must not let a token expire, nor ask without
// end.
const (
	minTokenRefresh = 10 * time.Second
	maxTokenRefresh = 5 * time.Minute
)

// refreshIn returns when a token is replaced that ends at a time: in the middle of what is left of its life.
func refreshIn(now, expires time.Time) time.Duration {
	return min(max(expires.Sub(now)/2, minTokenRefresh), maxTokenRefresh)
}

// keepIDToken keeps a valid token in a file until ctx ends. A refusal ends it, and so does a first attempt that
// fails: its caller then knows that there is no file.
func keepIDToken(
	ctx context.Context, ask func(ctx context.Context, audience string) (login.Answer, error), errs io.Writer,
	audience, file string,
) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return fault.New(fault.Invalid, "the file %q cannot be used: %w", file, err)
	}
	wait := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for first := true; ctx.Err() == nil; {
		answer, err := ask(ctx, audience)
		if err == nil {
			err = writeToken(path, answer.Secret().Reveal())
		}
		var next time.Duration
		switch {
		case err == nil:
			first = false
			wait.Reset()
			next = refreshIn(time.Now(), answer.Expires)
		case ctx.Err() == nil && (first || fault.CodeOf(err) == fault.Forbidden):
			return err
		case ctx.Err() == nil:
			next = wait.Next()
			fmt.Fprintf(errs, "Cannot replace the ID token in %s, trying again: %v\n", path, err)
		}
		_ = backoff.Sleep(ctx, next, nil) // the loop sees the end of ctx
	}
	return nil
}

// writeToken replaces a file, which only its owner may read, at once.
func writeToken(path, token string) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".coder-id-token-*")
	if err != nil {
		return fault.New(fault.Invalid, "cannot write the ID token: %w", err)
	}
	_, err = temp.WriteString(token)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temp.Name()))
		return fault.New(fault.Invalid, "cannot write the ID token: %w", err)
	}
	return nil
}
