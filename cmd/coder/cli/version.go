package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/internal/buildinfo"
)

func (a *app) versionCmd() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the program's version",
		Example: `  coder version
  coder version --output json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			out := a.streams().Out
			switch format {
			case "json":
				return printJSON(out, map[string]any{
					"version": buildinfo.Version(), "revision": buildinfo.Revision(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			case "text":
				_, err := fmt.Fprintf(out, "coder %s %s/%s\n", buildinfo.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			}
			return badFormat(format, "text or json")
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}

func (a *app) completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:       "completion {bash|zsh|fish|powershell}",
		Short:     "Print a completion script for a shell",
		Example:   `  coder completion bash >~/.local/share/bash-completion/completions/coder`,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      cobra.MatchAll(argument("shell"), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, root := a.streams().Out, cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(out)
			}
		},
	}
}
