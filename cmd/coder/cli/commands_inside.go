package cli

import "github.com/spf13/cobra"

// insideCommands returns the commands that run inside a workspace.
func insideCommands(a *app) []*cobra.Command {
	return []*cobra.Command{a.statCmd(), a.dotfilesCmd(), a.gitSSHCmd(), a.gitSignCmd(), a.gitAskpassCmd(), a.externalAuthCmd()}
}
