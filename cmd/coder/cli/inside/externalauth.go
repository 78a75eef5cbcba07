package inside

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
	var extra string
	var opts agentFlags
	token := &cobra.Command{
		Use:   "access-token ID",
		Short: "Print your access token for a service",
		Long: `Print your access token for a service that the server is configured with, renewed if it is about to expire. If you have not linked an
account, the command prints the URL of the page where you can.

With --extra it prints a property of the token instead, which the operator has named: text as it is, anything else as JSON.

In a workspace, the command asks the agent. A program beside the agent, such as another container, asks the server with the agent's
token and URL, and needs neither the agent nor a session.

Exit codes: 0 printed the token or the property; 1 printed the URL, or failed with an error on standard error.`,
		Example: `  coder external-auth access-token github
  coder external-auth access-token slack --extra authed_user.id
  coder external-auth access-token github --agent-url https://coder.example.com --agent-token-file /run/secrets/agent
  if TOKEN=$(coder external-auth access-token github); then curl -H "Authorization: Bearer $TOKEN" https://api.github.com/user; else echo "Open $TOKEN"; fi`,
		Args: flags.Argument("id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAccessToken(cmd, g, opts, args[0], extra)
		},
	}
	token.Flags().StringVar(&extra, "extra", "", "property of the token to print instead, such as authed_user.id")
	opts.add(token)
	cmd.AddCommand(token)
	return cmd
}

func runAccessToken(cmd *cobra.Command, g *global.Flags, opts agentFlags, id, extra string) error {
	answer, err := findLogin(cmd, g, opts, id)
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
	text := answer.Secret().Reveal()
	if extra != "" {
		if text, err = property(answer.Extra, extra); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(g.Streams().Out, text)
	return err
}

// property returns what a path of names with dots between them leads to in a JSON object.
func property(object json.RawMessage, path string) (string, error) {
	at := object
	for name := range strings.SplitSeq(path, ".") {
		var fields map[string]json.RawMessage
		if json.Unmarshal(at, &fields) != nil || fields[name] == nil {
			return "", fault.New(fault.NotFound, "the token has no property %q", path).
				WithDetail("the operator of the server names the properties that are kept: CODER_EXTERNAL_AUTH_0_EXTRA_TOKEN_KEYS")
		}
		at = fields[name]
	}
	var text string
	if json.Unmarshal(at, &text) == nil {
		return text, nil
	}
	return string(at), nil
}
