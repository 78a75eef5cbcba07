package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
)

func versionCmd(g *global.Flags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the program's version",
		Example: `  coder version
  coder version --output json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			out := g.Streams().Out
			switch format {
			case "json":
				return output.JSON(out, map[string]any{
					"version": buildinfo.Version(), "revision": buildinfo.Revision(), "os": runtime.GOOS, "arch": runtime.GOARCH,
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
