// Package inside holds the commands that run inside a workspace, one file for each. They speak with its agent, and with no server.
package inside

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/global"
)

// Commands returns the commands that run inside a workspace.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{statCmd(g), dotfilesCmd(g), gitSSHCmd(g), gitSignCmd(g), gitAskpassCmd(g), externalAuthCmd(g)}
}
