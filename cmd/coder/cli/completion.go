package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCmd(g *global.Flags) *cobra.Command {
	var shell string
	var printed bool
	cmd := &cobra.Command{
		Use:   "completion [bash|zsh|fish|powershell]",
		Short: "Print a completion script for a shell",
		Long:  `Print a completion script for a shell: the one that is named, or the one that $SHELL names. It changes no file.`,
		Example: `  coder completion bash >~/.local/share/bash-completion/completions/coder
  coder completion --shell fish --print >~/.config/fish/completions/coder.fish`,
		ValidArgs: shells,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, root := g.Streams().Out, cmd.Root()
			if len(args) > 0 {
				shell = args[0]
			}
			if shell == "" {
				shell = filepath.Base(os.Getenv("SHELL"))
			}
			switch shell {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell", "pwsh":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return exit.Try(fault.New(fault.Invalid, "name a shell: %s", strings.Join(shells, ", ")),
				"coder completion bash")
		},
	}
	cmd.Flags().StringVarP(&shell, "shell", "s", "", "shell to print a script for (default the one that $SHELL names)")
	cmd.Flags().BoolVarP(&printed, "print", "p", true, "print the script, which is all that this command does")
	cmd.Flags().Lookup("print").Hidden = true
	return cmd
}
