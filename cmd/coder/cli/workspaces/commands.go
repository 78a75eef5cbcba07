// Package workspaces holds the commands that create, build and show workspaces, one file for each.
package workspaces

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/global"
)

// Commands returns the commands that create, build and show workspaces.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{createCmd(g), startCmd(g), stopCmd(g), restartCmd(g), updateCmd(g), deleteCmd(g), renameCmd(g), listCmd(g), showCmd(g), logsCmd(g), stateCmd(g), scheduleCmd(g), autoupdateCmd(g), favoriteCmd(g), unfavoriteCmd(g)}
}
