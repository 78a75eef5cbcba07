// Package inside holds the commands that run inside a workspace, one file for each. They talk to its agent, and to no
// server.
package inside

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
)

// Commands returns the commands that run inside a workspace.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{statCmd(g), dotfilesCmd(g), gitSSHCmd(g), gitSignCmd(g), gitAskpassCmd(g), externalAuthCmd(g), idTokenCmd(g)}
}
