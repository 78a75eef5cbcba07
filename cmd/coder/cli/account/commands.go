// Package account holds the commands for sessions, users and their credentials, one file for each.
package account

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
)

// Commands returns the commands that manage users and their credentials.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{usersCmd(g), organizationsCmd(g), groupsCmd(g), tokensCmd(g), sessionsCmd(g), secretsCmd(g), sshKeyCmd(g), sshCertCmd(g), devicesCmd(g), notificationsCmd(g), webhooksCmd(g), publicKeyCmd(g), auditCmd(g), wsproxyCmd(g), identityCmd(g), deploymentCmd(g), featuresCmd(g), licensesCmd(g)}
}

// LoginCommands returns the commands that begin and end a session.
func LoginCommands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{loginCmd(g), logoutCmd(g), whoamiCmd(g)}
}
