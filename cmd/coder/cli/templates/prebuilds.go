package templates

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/internal/sdk"
)

// Prebuilds returns the command for prebuilt workspaces.
func Prebuilds(g *global.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "prebuilds", Aliases: []string{"prebuild"}, Short: "Pause and resume prebuilt workspaces",
		Long: `Pause and resume prebuilt workspaces. While they are paused, the server neither creates nor deletes any, for example because a template
asks for too many. Users still get those that exist. Resuming also tries again what failed too often.`,
		Example: `  coder prebuilds pause
  coder prebuilds resume`,
	}
	cmd.AddCommand(
		prebuildsSettingCmd(g, "pause", "Stop creating and deleting prebuilt workspaces", true, "Prebuilt workspaces are paused."),
		prebuildsSettingCmd(g, "resume", "Create and delete prebuilt workspaces again", false, "Prebuilt workspaces are created and deleted again."),
	)
	return cmd
}

func prebuildsSettingCmd(g *global.Flags, use, short string, pause bool, done string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		Example: "  coder prebuilds " + use,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := g.Client(cmd.Context())
			if err != nil {
				return err
			}
			if err := client.UpdatePrebuildsSettings(cmd.Context(), sdk.PrebuildsSettings{ReconciliationPaused: pause}); err != nil {
				return err
			}
			fmt.Fprintln(g.Streams().Err, done)
			return nil
		},
	}
}
