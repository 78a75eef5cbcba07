package cli

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// hasServer reports whether a program can also run a server: it is not the slim one.
func hasServer(root *cobra.Command) bool {
	return slices.ContainsFunc(root.Commands(), func(cmd *cobra.Command) bool { return cmd.Name() == "server" })
}

func versionCmd(g *global.Flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the program's version",
		Example: `  coder version
  coder version --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := g.Streams().Out
			switch format {
			case "json":
				return output.JSON(out, map[string]any{
					"version": buildinfo.Version(), "revision": buildinfo.Revision(), "os": runtime.GOOS, "arch": runtime.GOARCH,
					// As Coder's command line has them. The time is that of the commit, because builds are
					// reproducible.
					"build_time": buildinfo.Time(), "external_url": sdk.ProjectURL, "slim": !hasServer(cmd.Root()), "agpl": false, "boring_crypto": false,
				})
			case "text":
				_, err := fmt.Fprintf(out, "coder %s %s/%s\n", buildinfo.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			}
			return output.BadFormat(format, "text or json")
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}
