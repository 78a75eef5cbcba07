//go:build unix

package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// refused reports whether PostgreSQL refuses an address because of its password.
func refused(t *testing.T, address string) bool {
	t.Helper()
	_, err := query(t.Context(), address, "SELECT 'in'")
	var problem *pgconn.PgError
	return errors.As(err, &problem) && problem.Code == "28P01" || err != nil && strings.Contains(err.Error(), "password")
}

// with returns an address with a different password.
func with(t *testing.T, address, password string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if u.User = url.User("coder"); password != "" {
		u.User = url.UserPassword("coder", password)
	}
	return u.String()
}

func passwordOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}

// buffer is a log that can be written while it is read.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// closed checks that the database requires the password, which is in the file and nowhere else.
func closed(t *testing.T, dir string, srv *embedded.Server, log *buffer) {
	t.Helper()
	password := passwordOf(t, srv.URL())
	if got := mustQuery(t, srv.URL(), "SELECT 'in'"); got != "in" || len(password) < 20 {
		t.Errorf("the owner got %q", got)
	}
	if !refused(t, with(t, srv.URL(), "")) || !refused(t, with(t, srv.URL(), "coder")) {
		t.Error("PostgreSQL takes a wrong password, or none")
	}
	name := filepath.Join(dir, "postgres", "password")
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		t.Errorf("the password's file: %v, %v", info, err)
	}
	if text, err := os.ReadFile(name); err != nil || strings.TrimSpace(string(text)) != password {
		t.Errorf("the password's file does not hold it: %v", err)
	}
	rules, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "pg_hba.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		if rule, _, _ := strings.Cut(line, "#"); strings.Contains(rule, "trust") {
			t.Errorf("pg_hba.conf: %s", line)
		}
	}
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", postmaster(t, dir)))
	if err == nil && bytes.Contains(arguments, []byte(password)) {
		t.Error("the password is among PostgreSQL's arguments")
	}
	if log != nil && strings.Contains(log.String(), password) {
		t.Errorf("the password is in the log:\n%s", log)
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log buffer
	o := embedded.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	srv := start(t, o)
	closed(t, dir, srv, &log)
	address, err := embedded.RunningURL(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustQuery(t, address, "SELECT 'in'"); got != "in" {
		t.Errorf("by the printed address: got %q", got)
	}
	stop(t, srv)
	again := start(t, o)
	if again.URL() != srv.URL() {
		t.Error("a restart changed the address")
	}
	closed(t, dir, again, &log)
}

// TestPasswordMigrates starts on data folders from older releases, which trust every client, and on what interrupted
// migrations left behind.
func TestPasswordMigrates(t *testing.T) {
	t.Parallel()
	// old creates such a folder.
	old := func(t *testing.T) string {
		dir := t.TempDir()
		install, err := embedded.Find(t.Context(), dir, "")
		if err != nil {
			t.Fatal(err)
		}
		parent := filepath.Join(dir, "postgres")
		if err := os.MkdirAll(parent, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := install.InitDB(t.Context(), filepath.Join(parent, "data"), "", false); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(t *testing.T, dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "postgres", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, leave := range map[string]func(t *testing.T, dir string){
		"old":                   func(*testing.T, string) {},
		"the password was made": func(t *testing.T, dir string) { write(t, dir, "password", strings.Repeat("A", 26)+"\n") },
		"half of it was":        func(t *testing.T, dir string) { write(t, dir, "password.new", "AAAA") },
		"half of the rules":     func(t *testing.T, dir string) { write(t, dir, "data/pg_hba.conf.new", "local") },
		"the operator's rules": func(t *testing.T, dir string) {
			write(t, dir, "data/pg_hba.conf", "# mine\nlocal all all trust # all\nhost all all 127.0.0.1 255.255.255.255 trust\nlocal replication coder reject\n")
			info, err := os.Stat(filepath.Join(dir, "postgres", "data"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(filepath.Join(dir, "postgres", "data/pg_hba.conf"), int(info.Sys().(*syscall.Stat_t).Uid), -1); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := old(t)
			leave(t, dir)
			var log buffer
			srv := start(t, embedded.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			closed(t, dir, srv, &log)
			mustQuery(t, srv.URL(), "CREATE TABLE kept (v text)")
			if name == "the operator's rules" {
				rules, err := os.ReadFile(filepath.Join(dir, "postgres/data/pg_hba.conf"))
				if err != nil || !strings.Contains(string(rules), "local replication coder reject") || !strings.Contains(string(rules), "# mine") {
					t.Errorf("the operator's rules are gone: %s, %v", rules, err)
				}
			}
			stop(t, srv)
		})
	}
}

// TestPasswordLost starts on a data folder whose password file is missing, or belongs to another folder.
func TestPasswordLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, embedded.Options{Dir: dir})
	mustQuery(t, first.URL(), "CREATE TABLE kept AS SELECT 'kept' AS v")
	stop(t, first)
	name := filepath.Join(dir, "postgres", "password")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	second := start(t, embedded.Options{Dir: dir})
	closed(t, dir, second, nil)
	if second.URL() == first.URL() || mustQuery(t, second.URL(), "SELECT v FROM kept") != "kept" {
		t.Error("the lost password is still that, or the data is lost")
	}
	stop(t, second)
	if err := os.WriteFile(name, []byte(strings.Repeat("B", 26)), 0o600); err != nil {
		t.Fatal(err)
	}
	third := start(t, embedded.Options{Dir: dir})
	closed(t, dir, third, nil)
	if mustQuery(t, third.URL(), "SELECT v FROM kept") != "kept" {
		t.Error("the data is lost")
	}
	stop(t, third)
	if err := os.WriteFile(name, []byte("'; DROP"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFault(t, embedded.Options{Dir: dir}, "contains no password")
}

// TestSharedAccount starts on a data folder that belongs to the account that templates run as.
func TestSharedAccount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root chooses another account")
	}
	dir := t.TempDir()
	srv := start(t, embedded.Options{Dir: dir})
	stop(t, srv)
	data := filepath.Join(dir, "postgres", "data")
	err := filepath.WalkDir(data, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, 65534, 65534))
	})
	if err != nil {
		t.Fatal(err)
	}
	again := start(t, embedded.Options{Dir: dir})
	closed(t, dir, again, nil)
	for _, name := range []string{data, filepath.Join(data, "base"), fmt.Sprintf("/proc/%d", postmaster(t, dir))} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 65534 || uid == 0 {
			t.Errorf("%s belongs to %d", name, uid)
		}
	}
}
