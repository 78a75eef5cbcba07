package cli

import "github.com/spf13/cobra"

// accountCommands returns the commands that manage users and their credentials.
func accountCommands(a *app) []*cobra.Command {
	return []*cobra.Command{a.usersCmd(), a.tokensCmd(), a.publicKeyCmd()}
}

// loginCommands returns the commands that begin and end a session.
func loginCommands(a *app) []*cobra.Command {
	return []*cobra.Command{a.loginCmd(), a.logoutCmd(), a.whoamiCmd()}
}
