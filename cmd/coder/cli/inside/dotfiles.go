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

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// dotfilesScripts lists the install scripts of a repository. dotfiles runs the first that exists.
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

// dotfilesCmd needs git, but no server.
func dotfilesCmd(g *global.Flags) *cobra.Command {
	var opts dotfilesOptions
	cmd := &cobra.Command{
		Use:   "dotfiles REPOSITORY",
		Short: "Install dotfiles from a Git repository",
		Long: `Clone or update a dotfiles repository and install it with its own script (` + strings.Join(dotfilesScripts, ", ") + `),
or, if it has none, by linking its files whose names begin with a dot, and those in folders whose names do. An existing file is kept as NAME.bak,
and folders keep what else they hold.`,
		Example: `  coder dotfiles https://github.com/me/dotfiles
  coder dotfiles git@github.com:me/dotfiles.git --branch main -y`,
		Args: flags.Argument("repository"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.repo = args[0]
			return runDotfiles(g, cmd, opts)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&opts.branch, "branch", "b", "", "branch to use (default the repository's default branch)")
	f.StringVar(&opts.dir, "repo-dir", "dotfiles", "folder of the clone, relative to the configuration folder")
	f.StringVar(&opts.symlinkDir, "symlink-dir", "", "folder for the links (default the home folder)")
	flags.SetEnv(f.Lookup("symlink-dir"), "CODER_SYMLINK_DIR")
	flags.Yes(cmd, &opts.yes)
	return cmd
}

func runDotfiles(g *global.Flags, cmd *cobra.Command, opts dotfilesOptions) error {
	if strings.HasPrefix(opts.repo, "-") {
		return fault.New(fault.Invalid, "%q is not a repository", opts.repo)
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
			return fault.New(fault.Invalid, "cannot find the home folder: %w", err)
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
			return exit.Try(fault.New(fault.Invalid, "the script %s of the dotfiles is not executable", name),
				"git update-index --chmod=+x %s", shell.Word(name))
		}
		fmt.Fprintf(g.Streams().Err, "Running %s.\n", path)
		if err := program(ctx, g, dir, path); err != nil {
			return fault.New(fault.Conflict, "the script %s of the dotfiles failed: %w", name, err)
		}
		return nil
	}
	return linkDotfiles(g, dir, home)
}

// fetchDotfiles clones the repository or updates its clone. It refuses a clone of another repository, or one with
// changes.
func fetchDotfiles(ctx context.Context, g *global.Flags, dir string, opts dotfilesOptions) error {
	if _, err := os.Stat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return fault.New(fault.Invalid, "cannot create the folder of the dotfiles: %w", err)
		}
		args := []string{"git", "clone"}
		if opts.branch != "" {
			args = append(args, "--branch", opts.branch)
		}
		if err := program(ctx, g, "", append(args, "--", opts.repo, dir)...); err != nil {
			return exit.Try(fault.New(fault.Unavailable, "cannot clone the repository %s: %w", opts.repo, err),
				"git clone %s", shell.Word(opts.repo))
		}
		return nil
	}
	have, err := gitOutput(ctx, dir, "remote", "get-url", "origin")
	if err != nil {
		return fault.New(fault.Conflict, "the folder %s is not a clone: %w", dir, err)
	}
	if have != opts.repo {
		return exit.Try(fault.New(fault.Conflict, "the folder %s is a clone of %s", dir, have),
			"coder dotfiles %s --repo-dir OTHER", shell.Word(opts.repo))
	}
	changes, err := gitOutput(ctx, dir, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return fault.New(fault.Conflict, "cannot read the folder %s: %w", dir, err)
	}
	if changes != "" {
		return exit.Try(fault.New(fault.Conflict, "the dotfiles in %s have uncommitted changes", dir),
			"git -C %s status", shell.Word(dir))
	}
	if opts.branch != "" {
		if err := program(ctx, g, dir, "git", "fetch", "origin", opts.branch); err != nil {
			return fault.New(fault.Unavailable, "cannot fetch the branch %s: %w", opts.branch, err)
		}
		if err := program(ctx, g, dir, "git", "checkout", opts.branch); err != nil {
			return fault.New(fault.Conflict, "cannot check out the branch %s: %w", opts.branch, err)
		}
	}
	if err := program(ctx, g, dir, "git", "pull", "--ff-only"); err != nil {
		return exit.Try(fault.New(fault.Unavailable, "cannot update the dotfiles: %w", err), "git -C %s pull",
			shell.Word(dir))
	}
	return nil
}

// program runs a program on this command's streams. The program's output goes to standard error.
func program(ctx context.Context, g *global.Flags, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	output := tty.Raw(g.Streams().Err)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, g.Streams().In, output, output
	return cmd.Run()
}

func gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// link is a file of the repository and where it belongs.
type link struct{ from, to string }

// linkDotfiles links every file of the repository whose name, or that of its outermost folder, begins with a dot. It
// makes folders that are missing and never replaces one, because other programs keep their files there. It changes
// nothing if something is in the way.
func linkDotfiles(g *global.Flags, dir, home string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fault.New(fault.Internal, "cannot find the dotfiles: %w", err)
	}
	if home, err = filepath.Abs(home); err != nil {
		return fault.New(fault.Internal, "cannot find the folder for the links: %w", err)
	}
	links, linked, err := missingLinks(dir, home)
	if err != nil {
		return err
	}
	if len(links)+linked == 0 {
		return fault.New(fault.Invalid,
			"the repository has neither an install script nor a file whose name begins with a dot")
	}
	for _, l := range links {
		if err := os.MkdirAll(filepath.Dir(l.to), 0o755); err != nil {
			return fault.New(fault.Conflict, "cannot make a folder for %s: %w", l.to, err)
		}
		if err := setAside(g, l.to); err != nil {
			return err
		}
		if err := os.Symlink(l.from, l.to); err != nil {
			return fault.New(fault.Conflict, "cannot link %s: %w", l.to, err)
		}
	}
	fmt.Fprintf(g.Streams().Err, "Linked %d dotfiles.\n", len(links)+linked)
	return nil
}

// missingLinks returns the links to make, and how many exist.
func missingLinks(dir, home string) (links []link, linked int, err error) {
	err = filepath.WalkDir(dir, func(from string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fault.New(fault.Internal, "cannot list the dotfiles: %w", err)
		}
		if from == dir {
			return nil
		}
		name := strings.TrimPrefix(from, dir+string(filepath.Separator))
		top := filepath.Dir(name) == "."
		if top && (!strings.HasPrefix(name, ".") || slices.Contains(notDotfiles, name)) || entry.Name() == ".git" {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		to := filepath.Join(home, name)
		if target, err := os.Readlink(to); err == nil && target == from {
			linked++
			if entry.IsDir() { // earlier versions linked folders
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(to)
		switch {
		case entry.IsDir() && err == nil && !info.IsDir():
			return exit.Try(fault.New(fault.Conflict, "%s is a file, and the repository has a folder with that name",
				to), "mv %s %s", shell.Word(to), shell.Word(to+".bak"))
		case entry.IsDir():
			return nil
		case err == nil && info.IsDir():
			return exit.Try(fault.New(fault.Conflict, "%s is a folder, and the repository has a file with that name",
				to), "mv %s %s", shell.Word(to), shell.Word(to+".bak"))
		}
		if parent := existing(filepath.Dir(to)); parent == dir ||
			strings.HasPrefix(parent, dir+string(filepath.Separator)) {
			return fault.New(fault.Conflict, "%s lies in the clone of the dotfiles, %s", to, dir).
				WithDetail("Choose another folder for the clone with --repo-dir, or for the links with --symlink-dir.")
		}
		links = append(links, link{from, to})
		return nil
	})
	return links, linked, err
}

// existing returns the innermost folder of a path that exists, without links.
func existing(path string) string {
	for ; ; path = filepath.Dir(path) {
		if found, err := filepath.EvalSymlinks(path); err == nil || filepath.Dir(path) == path {
			return found
		}
	}
}

// notDotfiles are files that Git and hosts of repositories read.
var notDotfiles = []string{".git", ".gitignore", ".gitattributes", ".gitmodules", ".github"}

// setAside renames what has the name, if anything, to the first of NAME.bak, NAME.bak.1, NAME.bak.2 … that is free.
func setAside(g *global.Flags, name string) error {
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	aside := name + ".bak"
	for n := 1; ; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return fault.New(fault.Conflict, "%s is in the way: %w", name, err)
		}
		aside = fmt.Sprintf("%s.bak.%d", name, n)
	}
	if err := os.Rename(name, aside); err != nil {
		return fault.New(fault.Conflict, "%s is in the way: %w", name, err)
	}
	fmt.Fprintf(g.Streams().Err, "Moved the existing %s to %s.\n", name, filepath.Base(aside))
	return nil
}
