package cli

import "github.com/spf13/cobra"

// connectCommands returns the commands that reach a workspace.
func connectCommands(a *app) []*cobra.Command {
	return []*cobra.Command{a.sshCmd(), a.configSSHCmd(), a.portForwardCmd(), a.pingCmd(), a.speedtestCmd()}
}
