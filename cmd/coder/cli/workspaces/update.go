package workspaces

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func updateCmd(g *global.Flags) *cobra.Command {
	var opts buildOptions
	var plan bool
	var format string
	cmd := &cobra.Command{
		Use:   "update WORKSPACE",
		Short: "Build a workspace with its template's active version",
		Long: `Build a workspace with its template's active version. The command prints the version and its message. A running workspace is stopped and
started again. Parameters keep their values; on a terminal the command asks for new ones. An invalid value is refused before the workspace stops. ` + interruptHelp + "\n\n" + planHelp + "\n\n" + replaceHelp,
		Example: `  coder update dev
  coder update dev --parameter region=eu
  coder update dev --plan`,
		Args: flags.Argument("workspace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return output.BadFormat(format, "table or json")
			}
			if cmd.Flags().Changed("output") && !plan {
				return fault.New(fault.Invalid, "--output requires --plan")
			}
			return onWorkspace(g, cmd, args[0], func(_ context.Context, client *sdk.Client, ws sdk.Workspace) error {
				if plan {
					return planUpdate(g, cmd, client, ws, &opts, format)
				}
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
	cmd.Flags().BoolVar(&plan, "plan", false, "print which resources the update would change, and change nothing")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json, with --plan")
	cmd.MarkFlagsMutuallyExclusive("plan", "no-wait")
	return cmd
}

const planHelp = `With --plan, a provisioner plans the update with the workspace's Terraform state, and the command lists which resources it would create,
update in place, replace, delete or forget, with the attributes that change or force the replacement. Nothing is changed.`

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
