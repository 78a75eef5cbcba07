package templates

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/starters"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func templatesInitCmd(g *global.Flags) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "init [starter|folder]",
		Short: "Write a starter template into a folder",
		Long:  "Write a starter template into a folder of its name, or with --id into the given one. Starters:\n" + starterList(),
		Example: `  coder templates init docker
  coder templates init ./infra --id docker`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runInit(g, cmd, args, id) },
	}
	cmd.Flags().StringVar(&id, "id", "", "name of the starter")
	return cmd
}

func starterList() string {
	var b strings.Builder
	for _, s := range starters.List() {
		fmt.Fprintf(&b, "  %-14s %s\n", s.Name, s.Description)
	}
	return strings.TrimRight(b.String(), "\n")
}

func runInit(g *global.Flags, cmd *cobra.Command, args []string, id string) error {
	dir := ""
	if len(args) == 1 {
		if _, _, known := starters.Get(args[0]); known && id == "" {
			id = args[0]
		}
		dir = args[0]
	}
	if id == "" {
		q := tty.Question{Text: "Starter"}
		for _, s := range starters.List() {
			q.Choices = append(q.Choices, tty.Choice{Label: s.Name, Help: s.Description, Value: s.Name})
		}
		var err error
		if id, err = g.Streams().Ask(cmd.Context(), q); errors.Is(err, tty.ErrNotTerminal) {
			return noStarter(dir)
		} else if err != nil {
			return err
		}
	}
	files, starter, known := starters.Get(id)
	if !known {
		return exit.Try(fault.New(fault.NotFound, "there is no starter %q", id), "coder templates init --help")
	}
	if dir == "" {
		dir = starter.Name
	}
	if err := writeStarter(files, dir, starter.Name); err != nil {
		return err
	}
	fmt.Fprintf(g.Streams().Err, "Wrote the starter %s to %s. Next: coder templates push %s -d %s\n", starter.Name, dir,
		shell.Word(filepath.Base(dir)), shell.Word(dir))
	return nil
}

// suggested is the starter of the commands that errors propose.
const suggested = "docker"

// noStarter says which starters there are. dir is the argument, or "": one that is not a starter is a folder.
func noStarter(dir string) error {
	var names []string
	for _, s := range starters.List() {
		names = append(names, s.Name)
	}
	if dir == "" {
		return exit.Try(fault.New(fault.Invalid, "no starter is given. The starters are %s", strings.Join(names, ", ")),
			"coder templates init %s", shell.Word(suggested))
	}
	return exit.Try(fault.New(fault.Invalid, "%q is not a starter, and as a folder it needs --id. The starters are %s",
		dir, strings.Join(names, ", ")), "coder templates init %s --id %s", shell.Word(dir), shell.Word(suggested))
}

// freeFolder returns the folder with the first number that makes it a new one.
func freeFolder(dir string) string {
	for n := 2; ; n++ {
		free := fmt.Sprintf("%s-%d", filepath.Clean(dir), n)
		if _, err := os.Lstat(free); err != nil {
			return free
		}
	}
}

// writeStarter copies the files into the folder, or none if one of them already exists.
func writeStarter(files fs.FS, dir, id string) error {
	var names []string
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			return exit.Try(fault.New(fault.Conflict, "%s already exists", filepath.Join(dir, name)),
				"coder templates init %s --id %s", shell.Word(freeFolder(dir)), shell.Word(id))
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return fmt.Errorf("read starter: %w", err)
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fault.New(fault.Invalid, "cannot create the folder: %w", err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fault.New(fault.Invalid, "cannot write the file: %w", err)
		}
	}
	return nil
}
