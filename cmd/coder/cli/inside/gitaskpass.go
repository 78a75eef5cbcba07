package inside

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

func gitAskpassCmd(g *global.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "gitaskpass PROMPT",
		Short: "Answer Git's credential prompts inside a workspace",
		Long: `Answer Git's prompts for a user name or a password with your login at the Git host. Git calls this command in a workspace through
GIT_ASKPASS when it uses HTTPS. The token stays on the server and is fetched when Git asks. Without a login, the command prints where to get one,
and Git asks you if it has a terminal.

Exit codes: 0 answered, 1 no answer.`,
		Example: `  coder gitaskpass "Password for 'https://git.example.com': "`,
		Args:    flags.Argument("prompt"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runGitAskpass(cmd.Context(), g, args[0]) },
	}
}

// gitPrompt matches git's questions (credential.c, credential_ask_one), which are not translated.
var gitPrompt = lazyregexp.New(`^(Username|Password)(?: for '([^']*)')?: $`)

// AskpassArgs returns the program's arguments if Git has called it with only a prompt.
func AskpassArgs(args []string) ([]string, bool) {
	if len(args) != 1 || os.Getenv(login.SocketEnv) == "" || !gitPrompt().MatchString(args[0]) {
		return nil, false
	}
	return []string{"gitaskpass", args[0]}, true
}

// parsePrompt parses git's question: what git needs, and for which URL, without the user that may be in it.
func parsePrompt(text string) (password bool, url string, ok bool) {
	m := gitPrompt().FindStringSubmatch(text)
	if m == nil {
		return false, "", false
	}
	scheme, rest, found := strings.Cut(m[2], "://")
	if !found {
		return false, "", false
	}
	// Older versions of git do not encode a user name: one that contains a slash must not pass for a host. The text
	// after the last @ is the host, and a path with an @ names an unknown host.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	if rest == "" {
		return false, "", false
	}
	return m[1] == "Password", scheme + "://" + rest, true
}

func runGitAskpass(ctx context.Context, g *global.Flags, prompt string) error {
	password, url, ok := parsePrompt(prompt)
	if !ok {
		return noAnswer(g, "There is no answer to %.200q: git asks about URLs only.", prompt)
	}
	answer, err := askLogin(ctx, login.Request{URL: url})
	switch {
	case err != nil:
		return err
	case answer.Unknown:
		return noAnswer(g, "Your server has no login for %s.", url)
	case answer.Token == "":
		return noAnswer(g, "To let git in at %s, link your account of %s: open %s", url, answer.Name, answer.Page)
	case password:
		_, err = fmt.Fprintln(g.Streams().Out, answer.Secret().Reveal())
	default:
		_, err = fmt.Fprintln(g.Streams().Out, answer.Username)
	}
	return err
}

// noAnswer prints why there is no answer, on one line among Git's.
func noAnswer(g *global.Flags, format string, args ...any) error {
	fmt.Fprintf(g.Streams().Err, format+"\n", args...)
	return &exit.Error{Code: exit.Failed}
}

// askLogin asks the agent of the workspace for a login.
func askLogin(ctx context.Context, r login.Request) (login.Answer, error) {
	socket := os.Getenv(login.SocketEnv)
	if socket == "" {
		return login.Answer{}, exit.Try(fault.New(fault.Invalid, "there are no logins here: $%s is not set",
			login.SocketEnv), "Run this inside a workspace: coder ssh WORKSPACE")
	}
	answer, err := login.Ask(ctx, socket, r)
	if err != nil && ctx.Err() == nil {
		return answer, exit.Try(fault.New(fault.Unavailable, "cannot fetch the login: %w", err),
			"Try again in a moment.")
	}
	return answer, err
}
