package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/legacy"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// templatesCmd adds to the templates command what the slim program does not have.
func templatesCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "templates"}
	cmd.AddCommand(templatesMigrateCmd())
	return cmd
}

func templatesMigrateCmd() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "migrate [folder]",
		Short: "Rewrite a template for the built-in version of the provider coder",
		Long: `Rewrite what a template for an older version of the Terraform provider coder uses and the built-in version ` + legacy.Version + ` lacks. Without --write
the changes are shown as a diff, and no file changes. Comments and all other lines stay as they are. What you must change by hand is listed with file and
line. Subfolders are rewritten, too, except hidden ones.`,
		Example: `  coder templates migrate ./docker
  coder templates migrate ./docker --write && terraform fmt ./docker`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return runMigrate(cli.Streams(cmd), dir, write)
		},
	}
	cmd.Flags().BoolVarP(&write, "write", "w", false, "write the changes to the files")
	return cmd
}

func runMigrate(streams *tty.Streams, dir string, write bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return exit.Try(fault.New(fault.NotFound, "cannot open the folder: %w", err), "coder templates migrate FOLDER")
	}
	defer root.Close()
	files, err := readSources(root)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return exit.Try(fault.New(fault.NotFound, "the folder %s has no .tf file", dir),
			"coder templates migrate FOLDER")
	}
	changed, left, err := legacy.Rewrite(files)
	if err != nil {
		return exit.Try(err, "Correct the file, then run the command again.")
	}
	out, log := streams.Out, streams.Err
	names := slices.Sorted(maps.Keys(changed))
	for _, name := range names {
		if !write {
			to := out
			if !streams.OutTTY { // a program gets it as it is
				to = tty.Raw(out)
			}
			fmt.Fprintf(to, "%s", diff.Diff(name, files[name], name, changed[name]))
			continue
		}
		if err := root.WriteFile(name, changed[name], 0o644); err != nil { // keeps the mode of a file that exists
			return fault.New(fault.Invalid, "cannot write the file: %w", err)
		}
		fmt.Fprintln(out, name)
	}
	if len(left) > 0 {
		fmt.Fprintln(log, "Change by hand:")
	}
	for _, f := range left {
		fmt.Fprintf(log, "  %s\n", f)
	}
	switch {
	case len(changed) == 0 && len(left) == 0:
		fmt.Fprintln(log, "Nothing to change: the template fits version "+legacy.Version+" of the provider coder.")
	case len(changed) > 0 && !write:
		fmt.Fprintln(log, "To write the changes, add --write.")
	}
	return nil
}

// readSources reads the Terraform files of a folder, by their names with slashes. It leaves out hidden folders and
// links.
func readSources(root *os.Root) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fault.New(fault.Invalid, "cannot read the folder: %w", err)
		}
		if entry.IsDir() && name != "." && strings.HasPrefix(path.Base(name), ".") {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() || !strings.HasSuffix(name, ".tf") && !strings.HasSuffix(name, ".tf.json") {
			return nil
		}
		text, err := root.ReadFile(name)
		if err != nil {
			return fault.New(fault.Invalid, "cannot read the file: %w", err)
		}
		files[name] = text
		return nil
	})
	return files, err
}
