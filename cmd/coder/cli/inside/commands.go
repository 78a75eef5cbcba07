// Package inside holds the commands that run inside a workspace, one file for each. They talk to its agent. With the
// agent's token, external-auth talks to the server instead; no other command does.
package inside

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
)

// Commands returns the commands that run inside a workspace.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{statCmd(g), dotfilesCmd(g), gitSSHCmd(g), gitSignCmd(g), gitAskpassCmd(g), externalAuthCmd(g), idTokenCmd(g), fetchArchiveCmd(g)}
}
