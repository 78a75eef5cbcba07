package workspaces

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func updateCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	cmd := &cobra.Command{
		Use:   "update WORKSPACE",
		Short: "Build a workspace with its template's active version",
		Long: `Build a workspace with its template's active version. The command prints the version and its message. A running workspace is stopped and
started again. Parameters keep their values; on a terminal the command asks for new ones. An invalid value is refused before the workspace stops. ` + interruptHelp + "\n\n" + replaceHelp,
		Example: `  coder update dev
  coder update dev --parameter region=eu`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if !ws.Outdated && !opts.always && opts.params.Empty() {
					fmt.Fprintf(g.Streams().Err, "The workspace %s is up to date.\n", ws.FullName())
					return nil
				}
				if ws.Outdated {
					if err := announceUpdate(cmd.Context(), g.Streams().Err, client, ws); err != nil {
						return err
					}
				}
				return restartWorkspace(g, cmd, client, ws, &opts, ws.TemplateActiveVersionID)
			})
		},
	}
	opts.params.Add(cmd)
	opts.flags(cmd)
	opts.startFlags(cmd)
	return cmd
}

// announceUpdate prints the version that an update leads to, with its message. It prints nothing if the user may not see
// the template's versions.
func announceUpdate(ctx context.Context, out io.Writer, client *sdk.Client, ws sdk.Workspace) error {
	version, err := client.TemplateVersion(ctx, ws.TemplateActiveVersionID)
	if code := fault.CodeOf(err); code == fault.NotFound || code == fault.Forbidden {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Updating %s from version %s to %s.\n",
		ws.FullName(), ws.LatestBuild.TemplateVersionName, version.Name)
	for line := range strings.Lines(tty.Clean(version.Message)) {
		fmt.Fprintf(out, "  %s\n", strings.TrimSpace(line))
	}
	return nil
}
