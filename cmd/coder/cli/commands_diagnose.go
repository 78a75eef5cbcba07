package cli

import "github.com/spf13/cobra"

// diagnoseCommands returns the commands that look for what is wrong.
func diagnoseCommands(a *app) []*cobra.Command {
	return []*cobra.Command{a.netcheckCmd(), a.doctorCmd(), a.supportCmd()}
}
