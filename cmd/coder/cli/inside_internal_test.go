//go:build unix

package cli

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/units"
	"github.com/codermesh/codermesh/v2/agent/usage"
	"github.com/codermesh/codermesh/v2/internal/connset"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestStat(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"cpu"}, {"mem"}, {"disk"}, {"cpu", "--host"}, {"mem", "--host", "--prefix", "Mi"}} {
		r := run(t, "", "", append([]string{"stat"}, args...)...)
		if r.fault != nil || !regexp.MustCompile(`^\d+\.\d(/[\d.]+)? (cores|[KMGT]?i?B)( \(\d+%\))?\n$`).MatchString(r.out) {
			t.Errorf("stat %v: %q, %v", args, r.out, r.fault)
		}
		if strings.HasSuffix(args[len(args)-1], "Mi") && !strings.Contains(r.out, " MiB") {
			t.Errorf("stat %v: %q, want MiB", args, r.out)
		}
		var amount usage.Amount
		r = run(t, "", "", append([]string{"stat", "-o", "json"}, args...)...)
		if r.fault != nil || json.Unmarshal([]byte(r.out), &amount) != nil || amount.Unit == "" {
			t.Errorf("stat %v as JSON: %q, %v", args, r.out, r.fault)
		}
	}
	if r := run(t, "", "", "stat"); r.fault != nil || !strings.Contains(r.out, "host memory") {
		t.Errorf("stat: %q, %v", r.out, r.fault)
	}
	for _, args := range [][]string{{"stat", "mem", "--prefix", "Zi"}, {"stat", "cpu", "-o", "xml"}, {"stat", "disk", "--path", "/no/such"}} {
		if r := run(t, "", "", args...); r.fault == nil {
			t.Errorf("%v: %q, want an error", args, r.out)
		}
	}
}

func TestSync(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	graph := units.New("", 1)
	conns := connset.New(connset.Options{})
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = conns.Serve(listener, func(conn net.Conn) { _ = units.Serve(t.Context(), conn, graph) }) // a client may give up
	})
	t.Cleanup(func() {
		conns.Close()
		serving.Wait()
	})
	sync := func(args ...string) result {
		return run(t, "", "", append([]string{"exp", "sync", "--socket-path", socket}, args...)...)
	}
	for _, args := range [][]string{{"ping"}, {"want", "ide", "clone", "tools"}, {"start", "clone"}, {"complete", "clone"}} {
		if r := sync(args...); r.fault != nil || r.out != "" {
			t.Errorf("sync %v: %q, %v", args, r.out, r.fault)
		}
	}
	if r := sync("status", "ide"); r.out != "ide: pending, waits for tools\n" {
		t.Errorf("status: %q, %v", r.out, r.fault)
	}
	if r := sync("start", "ide", "--timeout", "20ms"); r.fault == nil || !strings.Contains(r.fault.Error(), "still waits for tools") {
		t.Errorf("start before its time: %v", r.fault)
	}
	if r := sync("status", "ide"); r.out != "ide: pending, waits for tools\n" { // the failed request did not start it
		t.Errorf("status after that: %q, %v", r.out, r.fault)
	}
	if r := sync("complete", "tools"); r.fault != nil {
		t.Error(r.fault)
	}
	if r := sync("start", "ide"); r.fault != nil {
		t.Error(r.fault)
	}
	var u units.Unit
	if r := sync("status", "ide", "-o", "json"); json.Unmarshal([]byte(r.out), &u) != nil || u.Status != units.Started {
		t.Errorf("status: %q", r.out)
	}
	if r := run(t, "", "", "exp", "sync", "ping", "--socket-path", ""); r.fault == nil || !strings.Contains(r.fault.Error(), "not a workspace") {
		t.Errorf("outside a workspace: %v", r.fault)
	}
}

// repository creates a dotfiles repository with the given files.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	commit(t, dir, files)
	return dir
}

func commit(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", ".")
	git(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "x")
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func TestDotfiles(t *testing.T) {
	t.Parallel()
	config, home := t.TempDir(), t.TempDir()
	repo := repository(t, map[string]string{".vimrc": "one", ".config/x": "y", "README": "no", ".gitignore": "z"})
	if err := os.WriteFile(filepath.Join(home, ".vimrc"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, ".config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".config/own"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	install := func(repo string, args ...string) result {
		return run(t, config, "", append([]string{"dotfiles", repo, "--symlink-dir", home}, args...)...)
	}
	if r := install(repo); r.fault == nil || !strings.Contains(r.fault.Error(), "confirmation") {
		t.Errorf("without a terminal and without --yes: %v", r.fault)
	}
	read := func(name, want string) {
		t.Helper()
		if data, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
	}
	if r := install(repo, "-y"); r.fault != nil {
		t.Fatal(r.fault)
	}
	read(".vimrc", "one")
	read(".vimrc.bak", "old")
	read(".config/x", "y")
	read(".config/own", "kept")
	for _, name := range []string{".git", ".gitignore", "README"} {
		if _, err := os.Lstat(filepath.Join(home, name)); err == nil {
			t.Errorf("%s is linked", name)
		}
	}
	commit(t, repo, map[string]string{".vimrc": "two"})
	if r := install(repo, "-y"); r.fault != nil {
		t.Fatal(r.fault)
	}
	read(".vimrc", "two")
	read(".vimrc.bak", "old") // our own link does not count as a file in the way

	other := repository(t, map[string]string{"install.sh": "#!/bin/sh\necho $PWD > " + filepath.Join(home, "ran") + "\n", ".vimrc": "three"})
	if r := install(other, "-y"); r.fault == nil || !strings.Contains(r.fault.Error(), "is a clone of") {
		t.Errorf("another repository: %v", r.fault)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if r := install(other, "-y", "--repo-dir", dir, "-b", "main"); r.fault != nil {
		t.Fatal(r.fault)
	}
	read("ran", dir+"\n")
	read(".vimrc", "two") // the script decides
	if err := os.WriteFile(filepath.Join(home, ".vimrc"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := install(repo, "-y"); r.fault == nil || !strings.Contains(r.fault.Error(), "uncommitted") {
		t.Errorf("with changes: %v", r.fault)
	}
	failing := repository(t, map[string]string{"setup": "#!/bin/sh\nexit 3\n"})
	if r := install(failing, "-y", "--repo-dir", filepath.Join(t.TempDir(), "d")); r.fault == nil || !strings.Contains(r.fault.Error(), "exit status 3") {
		t.Errorf("a script that fails: %v", r.fault)
	}
	if r := install("--upload-pack=x", "-y"); r.fault == nil {
		t.Error("a flag of git is taken for a repository")
	}
}

// contents returns everything in a home folder but the clone of dotfiles: the content of files, and what is a link.
func contents(t *testing.T, home string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(home, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && entry.Name() == "dotfiles" {
				return fs.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(name)
		found[strings.TrimPrefix(name, home+"/")] = map[bool]string{true: "link "}[entry.Type()&fs.ModeSymlink != 0] + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestDotfilesLoseNothing installs a repository over a home folder that holds the clone and the sign-in, as on a machine with the default
// folders.
func TestDotfilesLoseNothing(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	config := filepath.Join(home, ".config", "coderv2")
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	look := func() map[string]string { return contents(t, home) }
	put(".config/coderv2/session", "secret")
	put(".config/app/settings", "mine")
	put(".profile", "old")
	put(".profile.bak", "older")
	repo := repository(t, map[string]string{".config/app/settings": "theirs", ".config/new/deep/x": "x", ".profile": "new", ".ssh/config": "Host x"})
	install := func(repo string, args ...string) result {
		return run(t, config, "", append([]string{"dotfiles", repo, "--symlink-dir", home, "-y"}, args...)...)
	}
	if r := install(repo); r.fault != nil {
		t.Fatal(r.fault)
	}
	want := map[string]string{
		".config/coderv2/session":  "secret",
		".config/app/settings":     "link theirs",
		".config/app/settings.bak": "mine",
		".config/new/deep/x":       "link x",
		".profile":                 "link new",
		".profile.bak":             "older",
		".profile.bak.1":           "old",
		".ssh/config":              "link Host x",
	}
	if got := look(); !maps.Equal(got, want) {
		t.Errorf("after the first run: %v", got)
	}
	if r := install(repo); r.fault != nil {
		t.Fatal(r.fault)
	}
	if got := look(); !maps.Equal(got, want) {
		t.Errorf("after the second run: %v", got)
	}

	refused := func(what string, files map[string]string, args ...string) {
		t.Helper()
		if r := install(repository(t, files), args...); r.fault == nil || fault.CodeOf(r.fault) != fault.Conflict {
			t.Errorf("%s: %v", what, r.fault)
		}
		if _, err := os.Lstat(filepath.Join(home, ".a")); err == nil {
			t.Errorf("%s: half of the repository is linked", what)
		}
	}
	elsewhere := func() string { return filepath.Join(t.TempDir(), "d") }
	refused("a folder in place of a file", map[string]string{".a": "a", ".profile/x": "x"}, "--repo-dir", elsewhere())
	refused("a file in place of a folder", map[string]string{".a": "a", ".config": "x"}, "--repo-dir", elsewhere())
	if got := look(); !maps.Equal(got, want) {
		t.Errorf("after repositories that do not fit: %v", got)
	}
	if err := os.RemoveAll(filepath.Join(config, "dotfiles")); err != nil {
		t.Fatal(err)
	}
	refused("files in the clone", map[string]string{".a": "a", ".config/coderv2/dotfiles/deep/y": "x"})
}
