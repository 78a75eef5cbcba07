package account

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/internal/usersecret"
)

func secretsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret", Aliases: []string{"secrets"},
		Short: "Manage values that your workspaces get as variables and files",
		Long:  `Manage secrets: named values that all of your workspaces get as an environment variable, a file or both. Values cannot be read back.`,
		Example: `  printf %s "$TOKEN" | coder secret create npm --env NPM_TOKEN --file "~/.npm-token"
  coder secret list
  coder secret delete npm`,
	}
	cmd.AddCommand(secretCreateCmd(g), secretUpdateCmd(g), secretListCmd(g), secretDeleteCmd(g))
	return cmd
}

// secretFlags are the fields of a secret as flags.
type secretFlags struct {
	value, description, env, file string
	enabled                       bool
}

func (s *secretFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.value, "value", "",
		"value of the secret; prefer standard input, which your shell's history does not keep")
	f.StringVar(&s.description, "description", "", "description of the secret")
	f.StringVar(&s.env, "env", "", "environment variable that workspaces set to the value")
	f.StringVar(&s.file, "file", "", "file that workspaces write the value to: ~/… or an absolute path below home")
	f.BoolVar(&s.enabled, "enabled", true, "give the secret to workspaces")
}

// secretValue returns the value that a command gets with --value or on standard input, or nil.
func secretValue(g *global.Flags, cmd *cobra.Command, value string) (*string, error) {
	if cmd.Flags().Changed("value") {
		return &value, nil
	}
	if g.Streams().InTTY {
		return nil, nil
	}
	read, err := io.ReadAll(io.LimitReader(g.Streams().In, usersecret.MaxValue+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(read) > usersecret.MaxValue {
		return nil, fault.New(fault.Invalid, "the value on standard input has more than %d bytes", usersecret.MaxValue)
	}
	if len(read) == 0 {
		return nil, nil
	}
	value = string(read)
	return &value, nil
}

// warnNewline reports a newline that echo has added, which most programs do not expect in a variable.
func warnNewline(g *global.Flags, value *string, env string) {
	if value != nil && env != "" && strings.HasSuffix(*value, "\n") {
		fmt.Fprintf(g.Streams().Err, "Warning: the value ends with a newline, which %s will contain. Use printf %%s instead of echo to omit it.\n", env)
	}
}

func secretCreateCmd(g *global.Flags) *cobra.Command {
	var s secretFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a secret",
		Long:  `Create a secret. Its value comes from standard input or --value; on a terminal, the command asks for it.`,
		Example: `  printf %s "$TOKEN" | coder secret create npm --description "registry token" --env NPM_TOKEN
  coder secret create key --file "~/.ssh/deploy" < deploy-key`,
		Args: flags.Argument("secret's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			value, err := secretValue(g, cmd, s.value)
			if err != nil {
				return err
			}
			if value == nil && g.Streams().InTTY {
				answer, err := g.Streams().Ask(cmd.Context(), tty.Question{Text: "Value", Secret: true})
				if err != nil {
					return err
				}
				value = &answer
			}
			if value == nil {
				return exit.Try(fault.New(fault.Invalid, "the secret has no value"), `printf %%s "$VALUE" | coder secret create %s`, shell.Word(args[0]))
			}
			made, err := client.CreateUserSecret(cmd.Context(), sdk.Me, sdk.CreateUserSecretRequest{
				Name: args[0], Value: *value, Description: s.description, EnvName: s.env, FilePath: s.file,
				Enabled: &s.enabled,
			})
			if err != nil {
				return err
			}
			warnNewline(g, value, made.EnvName)
			fmt.Fprintf(g.Streams().Err, "Created the secret %s. %s\n", made.Name, reach(made))
			return nil
		},
	}
	s.add(cmd)
	return cmd
}

// reach describes what workspaces do with a secret.
func reach(s sdk.UserSecret) string {
	var where []string
	if s.EnvName != "" {
		where = append(where, "$"+s.EnvName)
	}
	if s.FilePath != "" {
		where = append(where, s.FilePath)
	}
	if len(where) == 0 || !s.Enabled {
		return "Workspaces do not get it."
	}
	return "Your workspaces get it as " + strings.Join(where, " and ") + "."
}

func secretUpdateCmd(g *global.Flags) *cobra.Command {
	var s secretFlags
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change a secret",
		Long:  `Change a secret's value, given on standard input or with --value, or its other fields. What you do not name stays as it is; an empty --env or --file removes that destination.`,
		Example: `  printf %s "$TOKEN" | coder secret update npm
  coder secret update npm --file ""`,
		Args: flags.Argument("secret's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			var req sdk.UpdateUserSecretRequest
			if req.Value, err = secretValue(g, cmd, s.value); err != nil {
				return err
			}
			for name, field := range map[string]struct{ to, from any }{
				"description": {&req.Description, &s.description}, "env": {&req.EnvName, &s.env}, "file": {&req.FilePath, &s.file}, "enabled": {&req.Enabled, &s.enabled},
			} {
				if !cmd.Flags().Changed(name) {
					continue
				}
				switch to := field.to.(type) {
				case **string:
					*to = field.from.(*string)
				case **bool:
					*to = field.from.(*bool)
				}
			}
			if req == (sdk.UpdateUserSecretRequest{}) {
				return exit.Try(fault.New(fault.Invalid, "there is nothing to change"), "coder secret update --help")
			}
			changed, err := client.UpdateUserSecret(cmd.Context(), sdk.Me, args[0], req)
			if err != nil {
				return exit.Try(err, "coder secret list")
			}
			warnNewline(g, req.Value, changed.EnvName)
			fmt.Fprintf(g.Streams().Err, "Changed the secret %s. %s\n", changed.Name, reach(changed))
			return nil
		},
	}
	s.add(cmd)
	return cmd
}

func secretListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.UserSecret]{Columns: []output.Column[sdk.UserSecret]{
		output.Col("name", func(s sdk.UserSecret) string { return s.Name }),
		output.Col("env", func(s sdk.UserSecret) string { return s.EnvName }),
		output.Col("file", func(s sdk.UserSecret) string { return s.FilePath }),
		output.Col("enabled", func(s sdk.UserSecret) string { return strconv.FormatBool(s.Enabled && !s.Unreadable) }),
		output.Col("updated", func(s sdk.UserSecret) string { return output.Ago(s.UpdatedAt) }),
		output.Col("created", func(s sdk.UserSecret) string { return output.Ago(s.CreatedAt) }),
		output.Col("description", func(s sdk.UserSecret) string { return s.Description }),
	}, Initial: []string{"name", "env", "file", "enabled", "updated", "description"}}
	cmd := &cobra.Command{
		Use: "list [NAME]", Aliases: []string{"ls"}, Short: "List secrets without their values",
		Example: `  coder secret list -o json`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			var secrets []sdk.UserSecret
			if len(args) == 1 {
				var one sdk.UserSecret
				one, err = client.UserSecret(cmd.Context(), sdk.Me, args[0])
				secrets = []sdk.UserSecret{one}
			} else {
				secrets, err = client.UserSecrets(cmd.Context(), sdk.Me)
			}
			if err != nil {
				return err
			}
			for _, s := range secrets {
				if s.Unreadable {
					fmt.Fprintf(g.Streams().Err, "Warning: the server has lost the key of %s. Set its value again with: coder secret update %s\n", s.Name, shell.Word(s.Name))
				}
			}
			return out.Print(g.Streams().Out, secrets)
		},
	}
	out.Flags(cmd)
	return cmd
}

func secretDeleteCmd(g *global.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm", "remove"}, Short: "Delete a secret",
		Long:    `Delete a secret. Running workspaces remove its file; sessions that are open keep its variable.`,
		Example: `  coder secret delete npm`,
		Args:    flags.Argument("secret's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := g.Confirm(cmd, yes, fmt.Sprintf("Delete the secret %s?", args[0]), false); err != nil {
				return err
			}
			if err := client.DeleteUserSecret(cmd.Context(), sdk.Me, args[0]); err != nil {
				return exit.Try(err, "coder secret list")
			}
			fmt.Fprintf(g.Streams().Err, "Deleted the secret %s.\n", args[0])
			return nil
		},
	}
	flags.Yes(cmd, &yes)
	return cmd
}
