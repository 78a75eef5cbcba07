package cli

import "github.com/spf13/cobra"

// workspacesCommands returns the commands that make, build and show workspaces.
func workspacesCommands(a *app) []*cobra.Command {
	return []*cobra.Command{a.createCmd(), a.startCmd(), a.stopCmd(), a.restartCmd(), a.updateCmd(), a.deleteCmd(), a.renameCmd(), a.listCmd(), a.showCmd(), a.logsCmd(), a.stateCmd(), a.scheduleCmd(), a.autoupdateCmd(), a.favoriteCmd(), a.unfavoriteCmd()}
}
