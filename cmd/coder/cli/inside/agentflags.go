package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// agentFlags name an agent by its token, and its server. Their variables are those of the agent's own process.
type agentFlags struct {
	url, token, tokenFile, auth string
}

func (a *agentFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "agent-url", "", "URL of the server to ask with the agent's token (default --url)")
	f.StringVar(&a.token, "agent-token", "",
		"token of the workspace's agent: ask the server with it instead of the agent")
	f.StringVar(&a.tokenFile, "agent-token-file", "", "file with the agent's token")
	f.StringVar(&a.auth, "auth", "token", "how the agent proves who it is: only token")
	flags.SetEnv(f.Lookup("agent-url"), "CODER_AGENT_URL")
	flags.SetEnv(f.Lookup("agent-token"), "CODER_AGENT_TOKEN")
	flags.SetEnv(f.Lookup("agent-token-file"), "CODER_AGENT_TOKEN_FILE")
	flags.SetEnv(f.Lookup("auth"), "CODER_AGENT_AUTH")
}

// given returns the agent's token if the server must be asked with it. A token of the environment, which may be that of
// an earlier start, counts only where there is no agent to ask. On the command line, --agent-token goes before the
// file.
func (a *agentFlags) given(cmd *cobra.Command) (token secret.Token, ok bool, err error) {
	typed := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f.Changed && flags.Source(f) == ""
	}
	text, alone := a.token, os.Getenv(login.SocketEnv) == ""
	switch {
	case typed("agent-token"):
	case typed("agent-token-file"), alone && text == "" && a.tokenFile != "":
		data, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return "", false, fault.New(fault.Invalid, "the agent's token cannot be read: %w", err)
		}
		text = string(data)
	case alone && text != "":
	default:
		return "", false, nil
	}
	if a.auth != "token" {
		return "", false, fault.New(fault.Invalid, "an agent cannot prove who it is by %q: only by its token", a.auth)
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", false, fault.New(fault.Invalid, "the agent's token is empty")
	}
	return secret.Token(text), true, nil
}

// findLogin asks the agent of the workspace for the login of a provider, or the server with the agent's token.
func findLogin(cmd *cobra.Command, g *global.Flags, opts agentFlags, id string) (login.Answer, error) {
	token, ok, err := opts.given(cmd)
	if err != nil {
		return login.Answer{}, err
	}
	if !ok {
		return askLogin(cmd.Context(), login.Request{Provider: id})
	}
	text := opts.url
	if text == "" {
		text = g.URL
	}
	if text == "" {
		return login.Answer{}, fault.New(fault.Invalid, "the server's URL is missing: --agent-url or $CODER_AGENT_URL")
	}
	server, err := global.ParseURL(text)
	if err != nil {
		return login.Answer{}, err
	}
	client, err := g.ClientFor(cmd.Context(), server, token)
	if err != nil {
		return login.Answer{}, err
	}
	found, err := client.AgentExternalAuth(cmd.Context(), id)
	if fault.CodeOf(err) == fault.Unauthenticated && err != nil {
		return login.Answer{}, exit.Try(err, "Pass the token of the agent of a workspace that runs.")
	}
	if err != nil {
		return login.Answer{}, exit.Try(err, "coder external-auth access-token --help")
	}
	answer := login.Answer{Provider: id, Page: found.URL, Username: found.Username, Token: found.AccessToken}
	if answer.Extra, err = json.Marshal(found.TokenExtra); err != nil {
		return login.Answer{}, fmt.Errorf("encode the token's properties: %w", err)
	}
	return answer, nil
}
