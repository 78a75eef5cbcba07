package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func sessionsCmd(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sessions", Aliases: []string{"session"}, Short: "Show where you are signed in, and sign out",
		Example: "  coder sessions list\n  coder sessions revoke --others",
	}
	cmd.AddCommand(sessionsListCmd(g), sessionsRevokeCmd(g))
	return cmd
}

// sessionOwner adds the flag that names whose sessions a command is about.
func sessionOwner(cmd *cobra.Command, user *string) {
	cmd.Flags().StringVarP(user, "user", "u", sdk.Me, "whose sessions; for owners and user admins of the server")
}

func sessionsListCmd(g *global.Flags) *cobra.Command {
	out := output.List[sdk.UserSession]{Columns: []output.Column[sdk.UserSession]{
		output.Col("id", func(s sdk.UserSession) string { return s.ID }),
		output.Col("device", func(s sdk.UserSession) string {
			if s.Current {
				return s.Device + " (this one)"
			}
			return s.Device
		}),
		output.Col("address", func(s sdk.UserSession) string { return s.Address }),
		output.Col("last used", func(s sdk.UserSession) string { return output.Ago(s.LastUsedAt) }),
		output.Col("signed in", func(s sdk.UserSession) string { return output.Ago(s.CreatedAt) }),
		output.Col("expires", func(s sdk.UserSession) string { return output.Ago(s.ExpiresAt) }),
		output.Col("user agent", func(s sdk.UserSession) string { return s.UserAgent }),
	}, Initial: []string{"id", "device", "address", "last used", "signed in"}}
	var user string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sessions, the last used first",
		Example: "  coder sessions list\n  coder sessions list --user grace",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			sessions, err := client.Sessions(cmd.Context(), user)
			if err != nil {
				return err
			}
			return out.Print(g.Streams().Out, sessions)
		},
	}
	sessionOwner(cmd, &user)
	out.Flags(cmd)
	return cmd
}

func sessionsRevokeCmd(g *global.Flags) *cobra.Command {
	var user string
	var all, others, yes bool
	cmd := &cobra.Command{
		Use:   "revoke [id]",
		Short: "End a session, all sessions, or all but this one",
		Long:  `End a session, all sessions, or all but the one of this command. What a session has open ends with it. API tokens live on.`,
		Example: `  coder sessions revoke 5Rk2vQx9aZ
  coder sessions revoke --others
  coder sessions revoke --all --user grace`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 == (all || others) || all && others {
				return exit.Try(fault.New(fault.Invalid, "name one session, or use --all or --others"),
					"coder sessions list")
			}
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if err := client.EndSession(cmd.Context(), user, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(g.Streams().Err, "Ended the session %s.\n", args[0])
				return nil
			}
			question := "End all of your sessions, this one too?"
			switch {
			case others:
				question = "End all of your sessions but this one?"
			case user != sdk.Me:
				question = "End all sessions of " + user + "?"
			}
			if err := g.Confirm(cmd, yes, question, false); err != nil {
				return err
			}
			if err := client.EndSessions(cmd.Context(), user, others); err != nil {
				return err
			}
			fmt.Fprintln(g.Streams().Err, "Ended the sessions.")
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "end all sessions")
	f.BoolVar(&others, "others", false, "end all sessions but the one of this command")
	sessionOwner(cmd, &user)
	flags.Yes(cmd, &yes)
	return cmd
}
