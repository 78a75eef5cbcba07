package inside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/internal/fault"
)

// dotfilesScripts are what a repository may bring to install itself, the first that is there.
var dotfilesScripts = []string{
	"install.sh", "install", "bootstrap.sh", "bootstrap", "setup.sh", "setup", "script/install", "script/bootstrap", "script/setup",
}

type dotfilesOptions struct {
	repo       string
	branch     string
	dir        string
	symlinkDir string
	yes        bool
}

// dotfilesCmd needs git and no server.
func dotfilesCmd(g *global.Flags) *cobra.Command {
	var opts dotfilesOptions
	cmd := &cobra.Command{
		Use:   "dotfiles REPOSITORY",
		Short: "Install dotfiles from a Git repository",
		Long: `Clone a repository of dotfiles, or update it, and install it: by its own script (` + strings.Join(dotfilesScripts, ", ") + `),
or, where it has none, by symbolic links to its files whose names begin with a dot. A file in the way is kept as NAME.bak.`,
		Example: `  coder dotfiles https://github.com/me/dotfiles
  coder dotfiles git@github.com:me/dotfiles.git --branch main -y`,
		Args: flags.Argument("repository"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.repo = args[0]
			return runDotfiles(g, cmd, opts)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&opts.branch, "branch", "b", "", "branch to use (default the repository's own)")
	f.StringVar(&opts.dir, "repo-dir", "dotfiles", "folder of the clone, below the folder of the configuration unless it is absolute")
	f.StringVar(&opts.symlinkDir, "symlink-dir", "", "where links are made (default the home folder)")
	flags.SetEnv(f.Lookup("symlink-dir"), "CODER_SYMLINK_DIR")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runDotfiles(g *global.Flags, cmd *cobra.Command, opts dotfilesOptions) error {
	if strings.HasPrefix(opts.repo, "-") {
		return fault.New(fault.Invalid, "%q is no repository", opts.repo)
	}
	if _, err := exec.LookPath("git"); err != nil {
		return exit.Try(fault.New(fault.Invalid, "git is not installed here"), "apt-get install git")
	}
	config, err := g.Config()
	if err != nil {
		return err
	}
	dir := opts.dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(string(config), dir)
	}
	home := opts.symlinkDir
	if home == "" {
		if home, err = os.UserHomeDir(); err != nil {
			return fault.New(fault.Invalid, "the home folder is not known: %w", err)
		}
	}
	if err := g.Confirm(cmd, opts.yes, fmt.Sprintf("Install the dotfiles of %s into %s? Their scripts run as you.", opts.repo, home), true); err != nil {
		return err
	}
	ctx := cmd.Context()
	if err := fetchDotfiles(ctx, g, dir, opts); err != nil {
		return err
	}
	for _, name := range dotfilesScripts {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.Mode()&0o111 == 0 {
			return exit.Try(fault.New(fault.Invalid, "the script %s of the dotfiles is not executable", name), "git update-index --chmod=+x %s", name)
		}
		fmt.Fprintf(g.Streams().Err, "Running %s.\n", path)
		if err := program(ctx, g, dir, path); err != nil {
			return fault.New(fault.Conflict, "the script %s of the dotfiles failed: %w", name, err)
		}
		return nil
	}
	return linkDotfiles(g, dir, home)
}

// fetchDotfiles clones the repository, or brings a clone up to date. A clone of another repository, or with changes, is left
// alone.
func fetchDotfiles(ctx context.Context, g *global.Flags, dir string, opts dotfilesOptions) error {
	if _, err := os.Stat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return fault.New(fault.Invalid, "the folder of the dotfiles cannot be made: %w", err)
		}
		args := []string{"git", "clone"}
		if opts.branch != "" {
			args = append(args, "--branch", opts.branch)
		}
		if err := program(ctx, g, "", append(args, "--", opts.repo, dir)...); err != nil {
			return exit.Try(fault.New(fault.Unavailable, "the repository %s cannot be cloned: %w", opts.repo, err), "git clone %s", opts.repo)
		}
		return nil
	}
	have, err := gitOutput(ctx, dir, "remote", "get-url", "origin")
	if err != nil {
		return fault.New(fault.Conflict, "the folder %s is no clone: %w", dir, err)
	}
	if have != opts.repo {
		return exit.Try(fault.New(fault.Conflict, "the folder %s is a clone of %s", dir, have), "coder dotfiles %s --repo-dir OTHER", opts.repo)
	}
	changes, err := gitOutput(ctx, dir, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return fault.New(fault.Conflict, "the folder %s cannot be read: %w", dir, err)
	}
	if changes != "" {
		return exit.Try(fault.New(fault.Conflict, "the dotfiles in %s have changes that are not committed", dir), "git -C %s status", dir)
	}
	if opts.branch != "" {
		if err := program(ctx, g, dir, "git", "fetch", "origin", opts.branch); err != nil {
			return fault.New(fault.Unavailable, "the branch %s cannot be fetched: %w", opts.branch, err)
		}
		if err := program(ctx, g, dir, "git", "checkout", opts.branch); err != nil {
			return fault.New(fault.Conflict, "the branch %s cannot be used: %w", opts.branch, err)
		}
	}
	if err := program(ctx, g, dir, "git", "pull", "--ff-only"); err != nil {
		return exit.Try(fault.New(fault.Unavailable, "the dotfiles cannot be updated: %w", err), "git -C %s pull", dir)
	}
	return nil
}

// program runs one with this command's streams; what it prints is for people.
func program(ctx context.Context, g *global.Flags, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, g.Streams().In, g.Streams().Err, g.Streams().Err
	return cmd.Run()
}

func gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// linkDotfiles links every file of the repository whose name begins with a dot.
func linkDotfiles(g *global.Flags, dir, home string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fault.New(fault.Internal, "the dotfiles cannot be listed: %w", err)
	}
	linked := 0
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") || slices.Contains([]string{".git", ".gitignore", ".gitattributes", ".gitmodules", ".github"}, name) {
			continue
		}
		from, to := filepath.Join(dir, name), filepath.Join(home, name)
		if target, err := os.Readlink(to); err == nil && target == from {
			linked++
			continue
		}
		if _, err := os.Lstat(to); err == nil {
			if err := os.Rename(to, to+".bak"); err != nil {
				return fault.New(fault.Conflict, "%s is in the way: %w", to, err)
			}
			fmt.Fprintf(g.Streams().Err, "%s was there and is %s.bak now.\n", to, name)
		}
		if err := os.Symlink(from, to); err != nil {
			return fault.New(fault.Conflict, "%s cannot be linked: %w", to, err)
		}
		linked++
	}
	if linked == 0 {
		return fault.New(fault.Invalid, "the repository has neither a script to install it nor a file whose name begins with a dot")
	}
	fmt.Fprintf(g.Streams().Err, "%d dotfiles are linked.\n", linked)
	return nil
}
