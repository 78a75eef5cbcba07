package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

// earlierCommit is the commit with the earliest servers that this program's can join, and whose program may use a newer
// schema. Its relays follow each other on encrypted connections: those of older ones do not, so that two relayed nodes
// at servers of different age would not hear each other.
const earlierCommit = "0f75b19a389c283d2ac786d5968d167bbd5a7726"

// earlierProgram returns the program of earlierCommit, which is kept in build/earlier, so that only the first test run builds it. A shallow clone has
// no earlier program: the test is skipped, and TestRollingDowngrade covers the upgrade.
func earlierProgram(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(root, "build", "earlier", earlierCommit, "coder")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", earlierCommit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("this clone's history does not reach back to the earlier release, commit %s: run git fetch --unshallow\n%s", earlierCommit, out)
	}
	source := t.TempDir()
	archive := filepath.Join(t.TempDir(), "source.tar")
	do(t, root, "git", "archive", "--output", archive, earlierCommit)
	do(t, source, "tar", "-xf", archive)
	buildProgram(t, source, "v2.31.10000+earlier", program)
	return program
}

// nextProgram returns a program of the next release: this one with a migration that adds a column and a table.
func nextProgram(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	migration, overlay := filepath.Join(dir, "next.sql"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(migration, []byte("-- +goose Up\nCREATE TABLE next_release (id uuid PRIMARY KEY);\n"+
		"ALTER TABLE provisioner_jobs ADD COLUMN next_release text NOT NULL DEFAULT '';\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "coderd/database/migrations/9000_next.sql"): migration}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(root, "build", "next", "coder")
	buildProgram(t, root, "v2.31.10002+next", program, "-overlay", overlay)
	return program
}

// buildProgram builds the program of the tree in source.
func buildProgram(t *testing.T, source, version, program string, args ...string) {
	t.Helper()
	tags, err := os.ReadFile(filepath.Join(source, "scripts", "slim.tags"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	fresh := program + ".new"
	do(t, source, "go", append([]string{"build", "-trimpath", "-tags", strings.TrimSpace(string(tags)) + ",grpcnotrace",
		"-ldflags", "-s -w -X " + modfile.ModulePath(mod) + "/internal/buildinfo.version=" + version, "-o", fresh}, append(args, "./cmd/coder")...)...)
	if err := os.Rename(fresh, program); err != nil {
		t.Fatal(err)
	}
}

// do runs a command in a folder.
func do(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// TestRollingUpgrade upgrades three servers one by one while sessions carry data and an agent and a provisioner of the earlier release work, and takes
// the upgrade back on one of them.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	f := prepareFleet(t, 3, "--provisioner-daemons=0")
	l := f.loadOf(earlierProgram(t))
	f.replace(l, "upgrade", coder)
	l.during("downgrade", func() {
		s := f.servers[0]
		s.program = earlierProgram(t)
		f.restart(s)
	})
	l.end()
}

// TestRollingDowngrade upgrades three servers of this release one by one to the next one, which adds to the schema, and goes back one by one. Each
// time a server of each release runs beside the other.
func TestRollingDowngrade(t *testing.T) {
	t.Parallel()
	f := prepareFleet(t, 3, "--provisioner-daemons=0")
	l := f.loadOf(coder)
	f.replace(l, "upgrade", nextProgram(t))
	log, err := os.ReadFile(filepath.Join(f.servers[0].dir, "server.log"))
	if err != nil || !strings.Contains(string(log), "to=9000") {
		t.Errorf("the first upgraded server did not migrate the schema (%v):\n%s", err, log)
	}
	f.replace(l, "downgrade", coder)
	l.end()
}

// TestStartOnOldestSchema starts a server on what the first release stored: its users sign in, its tokens work, and it lists and changes what they own.
func TestStartOnOldestSchema(t *testing.T) {
	t.Parallel()
	d := prepare(t, "--provisioner-daemons=0", "--stun-address=off", "--postgres-url", dbtest.EarlierURL(t, 1, os.DirFS("../coderd/database/testdata/rows")))
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.coder("login", d.url(), "--email", "ann@example.com", "--password", password)
	for command, want := range map[string]string{
		"whoami":             "ann",
		"list":               "dev",
		"templates list":     "docker",
		"users list":         "bob",
		"provisioner list":   "builder",
		"state pull dev":     `{"version": 4}`,
		"logs dev":           "Apply complete! Resources: 1 added",
		"schedule show dev":  "9:00",
		"organizations list": "default",
	} {
		if out := d.coder(strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("coder %s: got %q, want %q in it", command, out, want)
		}
	}
	d.token = "aaaaaaaaaa-0123456789abcdefghijkl"
	d.coder("rename", "dev", "prod", "-y")
	if got := d.workspace("prod").LatestBuild; got.Status != "running" || len(got.Resources) != 1 || got.Resources[0].Type != "docker_container" {
		t.Errorf("got the build %+v, want the one that the first release made", got)
	}
	if text := d.logText(); strings.Contains(text, "level=ERROR") || !strings.Contains(text, "from=1 ") {
		t.Errorf("the server did not migrate from schema 1, or complains:\n%s", text)
	}
}

// loadOf starts the servers and an agent and a provisioner of a program, and the load.
func (f *fleet) loadOf(program string) *load {
	f.t.Helper()
	f.program = program // of the provisioner
	for _, s := range f.servers {
		s.program, s.extra = program, append(s.extra, "CODER_DRAIN_DELAY=1s")
	}
	f.begin()
	return f.load()
}

// replace replaces the servers' program, one server after the other, while the load goes on.
func (f *fleet) replace(l *load, what, program string) {
	f.t.Helper()
	for i, s := range f.servers {
		l.during(fmt.Sprint(what, " ", i), func() {
			s.program = program
			f.restart(s)
		})
	}
}
