package cli

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
func (a *app) dotfilesCmd() *cobra.Command {
	var o dotfilesOptions
	cmd := &cobra.Command{
		Use:   "dotfiles REPOSITORY",
		Short: "Install dotfiles from a Git repository",
		Long: `Clone a repository of dotfiles, or update it, and install it: by its own script (` + strings.Join(dotfilesScripts, ", ") + `),
or, where it has none, by symbolic links to its files whose names begin with a dot. A file in the way is kept as NAME.bak.`,
		Example: `  coder dotfiles https://github.com/me/dotfiles
  coder dotfiles git@github.com:me/dotfiles.git --branch main -y`,
		Args: argument("repository"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.repo = args[0]
			return a.dotfiles(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.branch, "branch", "b", "", "branch to use (default the repository's own)")
	f.StringVar(&o.dir, "repo-dir", "dotfiles", "folder of the clone, below the folder of the configuration unless it is absolute")
	f.StringVar(&o.symlinkDir, "symlink-dir", "", "where links are made (default the home folder)")
	SetEnv(f.Lookup("symlink-dir"), "CODER_SYMLINK_DIR")
	yesFlag(cmd, &o.yes)
	return cmd
}

func (a *app) dotfiles(cmd *cobra.Command, o dotfilesOptions) error {
	if strings.HasPrefix(o.repo, "-") {
		return fault.New(fault.Invalid, "%q is no repository", o.repo)
	}
	if _, err := exec.LookPath("git"); err != nil {
		return Try(fault.New(fault.Invalid, "git is not installed here"), "apt-get install git")
	}
	config, err := a.config()
	if err != nil {
		return err
	}
	dir := o.dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(string(config), dir)
	}
	home := o.symlinkDir
	if home == "" {
		if home, err = os.UserHomeDir(); err != nil {
			return fault.New(fault.Invalid, "the home folder is not known: %w", err)
		}
	}
	if err := a.confirm(cmd, o.yes, fmt.Sprintf("Install the dotfiles of %s into %s? Their scripts run as you.", o.repo, home), true); err != nil {
		return err
	}
	ctx := cmd.Context()
	if err := a.fetchDotfiles(ctx, dir, o); err != nil {
		return err
	}
	for _, name := range dotfilesScripts {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.Mode()&0o111 == 0 {
			return Try(fault.New(fault.Invalid, "the script %s of the dotfiles is not executable", name), "git update-index --chmod=+x %s", name)
		}
		fmt.Fprintf(a.streams().Err, "Running %s.\n", path)
		if err := a.program(ctx, dir, path); err != nil {
			return fault.New(fault.Conflict, "the script %s of the dotfiles failed: %w", name, err)
		}
		return nil
	}
	return a.linkDotfiles(dir, home)
}

// fetchDotfiles clones the repository, or brings a clone up to date. A clone of another repository, or with changes, is left
// alone.
func (a *app) fetchDotfiles(ctx context.Context, dir string, o dotfilesOptions) error {
	if _, err := os.Stat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return fault.New(fault.Invalid, "the folder of the dotfiles cannot be made: %w", err)
		}
		args := []string{"git", "clone"}
		if o.branch != "" {
			args = append(args, "--branch", o.branch)
		}
		if err := a.program(ctx, "", append(args, "--", o.repo, dir)...); err != nil {
			return Try(fault.New(fault.Unavailable, "the repository %s cannot be cloned: %w", o.repo, err), "git clone %s", o.repo)
		}
		return nil
	}
	have, err := gitOutput(ctx, dir, "remote", "get-url", "origin")
	if err != nil {
		return fault.New(fault.Conflict, "the folder %s is no clone: %w", dir, err)
	}
	if have != o.repo {
		return Try(fault.New(fault.Conflict, "the folder %s is a clone of %s", dir, have), "coder dotfiles %s --repo-dir OTHER", o.repo)
	}
	changes, err := gitOutput(ctx, dir, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return fault.New(fault.Conflict, "the folder %s cannot be read: %w", dir, err)
	}
	if changes != "" {
		return Try(fault.New(fault.Conflict, "the dotfiles in %s have changes that are not committed", dir), "git -C %s status", dir)
	}
	if o.branch != "" {
		if err := a.program(ctx, dir, "git", "fetch", "origin", o.branch); err != nil {
			return fault.New(fault.Unavailable, "the branch %s cannot be fetched: %w", o.branch, err)
		}
		if err := a.program(ctx, dir, "git", "checkout", o.branch); err != nil {
			return fault.New(fault.Conflict, "the branch %s cannot be used: %w", o.branch, err)
		}
	}
	if err := a.program(ctx, dir, "git", "pull", "--ff-only"); err != nil {
		return Try(fault.New(fault.Unavailable, "the dotfiles cannot be updated: %w", err), "git -C %s pull", dir)
	}
	return nil
}

// program runs one with this command's streams; what it prints is for people.
func (a *app) program(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, a.streams().In, a.streams().Err, a.streams().Err
	return cmd.Run()
}

func gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// linkDotfiles links every file of the repository whose name begins with a dot.
func (a *app) linkDotfiles(dir, home string) error {
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
			fmt.Fprintf(a.streams().Err, "%s was there and is %s.bak now.\n", to, name)
		}
		if err := os.Symlink(from, to); err != nil {
			return fault.New(fault.Conflict, "%s cannot be linked: %w", to, err)
		}
		linked++
	}
	if linked == 0 {
		return fault.New(fault.Invalid, "the repository has neither a script to install it nor a file whose name begins with a dot")
	}
	fmt.Fprintf(a.streams().Err, "%d dotfiles are linked.\n", linked)
	return nil
}
