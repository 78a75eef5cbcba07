//go:build unix

package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// minMajor is the oldest supported major version of PostgreSQL.
const minMajor = 13

// Install is a set of PostgreSQL's programs, and the user that they run as.
type Install struct {
	BinDir  string
	Version string // "15.18"
	Major   int
	account *account // nil means this process's user
	maker   *account // runs initdb; nil means the account
}

// folders lists where distributions install the programs.
var folders = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // PostgreSQL's own packages for Red Hat
	"/usr/lib/postgresql*/bin",                           // SUSE
	"/usr/libexec/postgresql*",                           // Alpine
	"/usr/local/pgsql/bin",                               // built from source
	"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew
	"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/run/current-system/sw/bin",                         // NixOS
	filepath.Join(sharedFetchDir, "*", "native", "bin"),  // fetched by root
}

// Find looks for PostgreSQL's programs: in binDir, or on PATH, in the folders of distributions, and among those that
// Fetch stored below dir. If dir contains a data folder, Find chooses the major version that created it, otherwise the
// newest from 13 on. If there is none, the fault explains how to get one.
func Find(ctx context.Context, dir, binDir string) (Install, error) {
	in, _, err := find(ctx, dir, binDir)
	return in, err
}

// find is like Find, and also returns the newest programs to which the data can be upgraded.
func find(ctx context.Context, dir, binDir string) (in, newest Install, err error) {
	acc, maker, err := unprivileged(filepath.Join(dir, "postgres", "data"))
	if err != nil {
		return Install{}, Install{}, err
	}
	var found []Install
	bins, err := candidates(ctx, dir, binDir)
	if err != nil {
		return Install{}, Install{}, err
	}
	for _, bin := range bins {
		in, ok, err := inspect(ctx, bin)
		if err != nil {
			return Install{}, Install{}, err
		}
		if ok && acc.reaches(bin) {
			in.account, in.maker = acc, maker
			found = append(found, in)
		}
	}
	// The newest comes first; within a version, the one that was found first.
	slices.SortStableFunc(found, func(a, b Install) int { return cmp.Compare(b.Major, a.Major) })

	made, err := madeBy(filepath.Join(dir, "postgres", "data"))
	if err != nil {
		return Install{}, Install{}, err
	}
	if made != 0 {
		if i := slices.IndexFunc(found, func(in Install) bool { return in.Major == made }); i >= 0 {
			return found[i], newestRelease(found[:i+1]), nil
		}
		f := fault.New(fault.Unavailable, "The data in %s was created by PostgreSQL %d, which is not installed.", dir,
			made)
		if len(found) > 0 && found[0].Major > made {
			return Install{}, Install{}, f.WithDetail("Install PostgreSQL %d beside %d: the server then upgrades the data to %d.", made, found[0].Major, found[0].Major)
		}
		return Install{}, Install{}, f.WithDetail("Install PostgreSQL %d.", made)
	}
	if len(found) > 0 && found[0].Major >= minMajor {
		return found[0], found[0], nil
	}
	f := fault.New(fault.Unavailable, "PostgreSQL %d or newer is not installed.", minMajor)
	if binDir != "" {
		f = fault.New(fault.Unavailable, "PostgreSQL %d or newer was not found in %s.", minMajor, binDir)
	}
	return Install{}, Install{}, f.WithDetail("Install it with the package manager (apt install postgresql, dnf install postgresql-server, " +
		"brew install postgresql), let the server fetch it with --fetch-postgres, or name a database with --postgres-url.")
}

// newestRelease returns the first that is not a beta ("19beta1"), or the last.
func newestRelease(newestFirst []Install) Install {
	for _, in := range newestFirst {
		if !strings.ContainsFunc(in.Version, func(r rune) bool { return r >= 'a' }) {
			return in
		}
	}
	return newestFirst[len(newestFirst)-1]
}

// candidates returns the folders that may hold the programs, without duplicates.
func candidates(ctx context.Context, dir, binDir string) ([]string, error) {
	if binDir != "" {
		return []string{binDir}, nil
	}
	var list []string
	if onPath, err := exec.LookPath("postgres"); err == nil {
		// If it is a link, the other programs are in the folder that it points to.
		if program, err := filepath.EvalSymlinks(onPath); err == nil {
			list = append(list, filepath.Dir(program))
		}
	}
	if pgConfig, err := exec.LookPath("pg_config"); err == nil {
		// This covers a wrapper named postgres on PATH, and installations of only the client programs.
		out, err := output(ctx, pgConfig, "--bindir")
		if late(err) {
			return nil, err
		}
		if err == nil {
			list = append(list, strings.TrimSpace(out))
		}
	}
	for _, pattern := range append([]string{filepath.Join(dir, "pg", "*", "native", "bin")}, folders...) {
		matches, err := filepath.Glob(pattern)
		if err != nil { // dir contains a character with a special meaning to Glob
			continue
		}
		list = append(list, matches...)
	}
	var unique []string
	for _, folder := range list {
		if target, err := filepath.EvalSymlinks(folder); err == nil && !slices.Contains(unique, target) {
			unique = append(unique, target)
		}
	}
	return unique, nil
}

var versionForm = lazyregexp.New(`^postgres \(PostgreSQL\) (([0-9]+)[0-9a-z.]*)`)

// inspect reports whether a folder contains the required programs, and their version. Its error is a fault: they did
// not answer in time.
func inspect(ctx context.Context, bin string) (Install, bool, error) {
	for _, name := range []string{"postgres", "initdb"} {
		if info, err := os.Stat(filepath.Join(bin, name)); err != nil || !info.Mode().IsRegular() ||
			info.Mode()&0o111 == 0 {
			return Install{}, false, nil //nolint:nilerr // there is none
		}
	}
	out, err := output(ctx, filepath.Join(bin, "postgres"), "--version")
	if late(err) {
		return Install{}, false, err
	}
	match := versionForm().FindStringSubmatch(out)
	if err != nil || match == nil {
		return Install{}, false, nil //nolint:nilerr // it is another program
	}
	major, err := strconv.Atoi(match[2])
	return Install{BinDir: bin, Version: match[1], Major: major}, err == nil, nil
}

// answerTime is how long a program may take to say its version. It is far more than a busy machine needs, because one
// that is late is not taken for one that is missing: the server would refuse its data, or use another installation.
const answerTime = time.Minute

// output returns what a program prints. Its error is one for which late holds if the program did not end in time.
func output(ctx context.Context, name string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	cmd.Env = environ()
	cmd.WaitDelay = time.Second // a child of a wrapper may hold the pipe
	out, err := cmd.Output()
	if limited.Err() != nil {
		return "", fault.New(fault.Unavailable, "%s did not answer in %s: %w", name, answerTime, limited.Err()).
			WithDetail("Start the server again when the machine is less busy, or name a database with --postgres-url.")
	}
	return string(out), err
}

// late reports whether a program's answer did not come in time, or was not waited for.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// madeBy returns the major version that created a data folder, or 0 if there is none.
func madeBy(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, folderFault(err, data)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read %s/PG_VERSION: %w", data, err)
	}
	return major, nil
}

// environ returns the entire environment of PostgreSQL's programs.
func environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=/"}
}
