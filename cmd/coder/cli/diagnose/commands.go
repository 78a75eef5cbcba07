// Package diagnose holds the commands that find out why something does not work, one file for each.
package diagnose

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
)

// Commands returns the commands that diagnose problems.
func Commands(g *global.Flags) []*cobra.Command {
	return []*cobra.Command{netcheckCmd(g), doctorCmd(g), healthCmd(g), supportCmd(g)}
}
