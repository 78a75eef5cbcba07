package workspaces

import (
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
)

func taskCmd(g *global.Flags) *cobra.Command {
	return output.Absent{
		Name: "task", Aliases: []string{"tasks"}, Things: "tasks", Reason: "this server has no tasks",
		Remedy: "Create a workspace instead: coder create",
		Verbs:  []string{"create", "delete", "logs", "pause", "resume", "send", "status"},
	}.Command(g.Streams)
}
