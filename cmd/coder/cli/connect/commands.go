// Package connect holds the commands that reach a workspace, one file for each.
package connect

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
)

// Commands returns the commands that reach a workspace.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{sshCmd(g), vscodeSSHCmd(g), configSSHCmd(g), sshCACmd(g), portForwardCmd(g), pingCmd(g), speedtestCmd(g), connectCmd(g)}
}
