package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// docsCmd is what the makers of packages need.
func docsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Write documentation of the program"}
	cmd.AddCommand(genManCmd())
	return cmd
}

func genManCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "gen-man FOLDER",
		Short: "Write a manual page for each command",
		Long: `Write a manual page for each command into a folder. Afterwards man coder-ssh shows that of coder ssh. The packages of a release have these pages.
$SOURCE_DATE_EPOCH sets the date in them, so that two builds are equal.`,
		Example: `  coder docs gen-man /usr/local/share/man/man1`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return writeManual(cmd.Root(), args[0]) },
	}
}

// writeManual writes the pages of a command and of all below it into a folder, which it makes if it is missing.
func writeManual(root *cobra.Command, folder string) error {
	untagged(root)
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = doc.GenManTree(root, &doc.GenManHeader{
			Section: "1", Source: "codermesh " + buildinfo.Version(), Manual: "coder",
		}, folder)
	}
	if err != nil {
		return exit.Try(fault.New(fault.Invalid, "The manual pages cannot be written: %w", err),
			"Name a folder that you may write to: coder docs gen-man ./man1")
	}
	return nil
}

// untagged leaves the day of their making out of the pages.
func untagged(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, sub := range cmd.Commands() {
		untagged(sub)
	}
}
