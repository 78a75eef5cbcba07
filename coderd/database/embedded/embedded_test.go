//go:build unix

package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// asServer, set to a data folder, turns the test program into a server that runs PostgreSQL there until it is killed.
const asServer = "EMBEDDED_TEST_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asServer); dir != "" {
		srv, err := embedded.Start(context.Background(), embedded.Options{Dir: dir, Logger: slog.New(newSuicide())})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(srv.URL())
		select {}
	}
	goleak.VerifyTestMain(m)
}

// patience bounds waits that end much earlier in a test that passes.
const patience = testwait.Patience

var quiet = slog.New(slog.DiscardHandler)

func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	srv, err := embedded.Start(t.Context(), o)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { stop(t, srv) })
	return srv
}

func stop(t *testing.T, srv *embedded.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := srv.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// query runs a statement and returns its single value.
func query(ctx context.Context, url, sql string) (string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(values, ","), err
}

func mustQuery(t *testing.T, url, sql string) string {
	t.Helper()
	got, err := query(t.Context(), url, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Split(string(text), "\n")[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func gone(t *testing.T, pid int) {
	t.Helper()
	testwait.Until(t, "a process has ended", func() error {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Errorf("%d is there", pid)
		}
		return nil
	})
}

// closedFolder returns a folder below one that only its owner may enter, as is common for a home folder, with a name too long
// for a socket.
func closedFolder(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "closed", strings.Repeat("long", 25), "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	dir := closedFolder(t)
	srv := start(t, embedded.Options{Dir: dir})
	mustQuery(t, srv.URL(), "CREATE TABLE kept (v text)")
	mustQuery(t, srv.URL(), "INSERT INTO kept VALUES ('first')")
	if got := mustQuery(t, srv.URL(), "SELECT setting FROM pg_settings WHERE name IN ('listen_addresses', 'fsync', 'server_encoding') ORDER BY name"); got != "on,,UTF8" {
		t.Errorf("fsync, listen_addresses, server_encoding: got %q", got)
	}
	info, err := os.Stat(filepath.Join(dir, "postgres", "data"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data folder: %v, %v: others may enter", info.Mode(), err)
	}
	if os.Geteuid() == 0 {
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
			t.Error("PostgreSQL's folder belongs to root")
		}
	}
	pid := postmaster(t, dir)
	stop(t, srv)
	stop(t, srv) // again
	gone(t, pid)

	again := start(t, embedded.Options{Dir: dir})
	if got := mustQuery(t, again.URL(), "SELECT v FROM kept"); got != "first" {
		t.Errorf("after a restart: got %q", got)
	}
}

// TestDoubleStart checks that of two concurrent starts on one folder, one succeeds and the other reports which process has
// it.
func TestDoubleStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	servers, errs := make([]*embedded.Server, 4), make([]error, 4)
	for i := range servers {
		wg.Go(func() {
			servers[i], errs[i] = embedded.Start(t.Context(), embedded.Options{Dir: dir, Logger: quiet})
		})
	}
	wg.Wait()
	running := 0
	for i, srv := range servers {
		if srv != nil {
			running++
			stop(t, srv)
			continue
		}
		if f := fault.As(errs[i]); f == nil || f.Code != fault.Conflict {
			t.Errorf("another start: got %v, want a conflict", errs[i])
		}
	}
	if running != 1 {
		t.Errorf("%d servers ran at once", running)
	}
	start(t, embedded.Options{Dir: dir}) // afterwards the folder is free
}

// TestAttach checks that a command beside a server uses its PostgreSQL and leaves it running, and that without a server the
// command runs PostgreSQL itself.
func TestAttach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := embedded.Attach(t.Context(), embedded.Options{Dir: dir, Logger: quiet}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("attach where nothing is: got %v, want that it says so", err)
	}
	attach := func() *embedded.Server {
		t.Helper()
		beside, err := embedded.Attach(t.Context(), embedded.Options{Dir: dir, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, beside) })
		return beside
	}
	srv := start(t, embedded.Options{Dir: dir})
	mustQuery(t, srv.URL(), "CREATE TABLE kept (v text)")
	pid := postmaster(t, dir)
	beside := attach()
	mustQuery(t, beside.URL(), "INSERT INTO kept VALUES ('beside')")
	stop(t, beside)
	if now := postmaster(t, dir); now != pid {
		t.Errorf("PostgreSQL is process %d after a command beside it, was %d", now, pid)
	}
	if got := mustQuery(t, srv.URL(), "SELECT v FROM kept"); got != "beside" {
		t.Errorf("the server sees %q", got)
	}
	stop(t, srv)
	if _, err := embedded.RunningURL(dir); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("URL of a stopped server: got %v, want that it says so", err)
	}
	if got := mustQuery(t, attach().URL(), "SELECT v FROM kept"); got != "beside" {
		t.Errorf("without a server: got %q", got)
	}
	address, err := embedded.RunningURL(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustQuery(t, address, "SELECT v FROM kept"); got != "beside" {
		t.Errorf("by the printed URL: got %q", got)
	}
}

// TestServerKilled checks that after kill -9 of the server, the next start takes over the database with all committed data.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	dir := closedFolder(t)
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asServer+"="+dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 4096)
		n, err := out.Read(line)
		if err != nil {
			t.Fatalf("server: %v: %s", err, &stderr)
		}
		url := strings.TrimSpace(string(line[:n]))
		if round == 0 {
			mustQuery(t, url, "CREATE TABLE kept (v int)")
		}
		mustQuery(t, url, fmt.Sprintf("INSERT INTO kept VALUES (%d)", round))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		// The next round's server starts immediately, while this one's PostgreSQL may still be running.
	}
	srv := start(t, embedded.Options{Dir: dir})
	if got := mustQuery(t, srv.URL(), "SELECT count(*)::text FROM kept"); got != "3" {
		t.Errorf("rows after three kills: got %s, want 3", got)
	}
}

// TestOrphan checks that a PostgreSQL that outlived its server is stopped, and that a damaged postmaster.pid is ignored.
func TestOrphan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stop(t, start(t, embedded.Options{Dir: dir}))
	data := filepath.Join(dir, "postgres", "data")

	install, err := embedded.Find(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	cmd, closeAfter, err := install.Command(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAfter()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testwait.Until(t, "the orphan starts", func() error {
		text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		if err == nil && !strings.Contains(string(text), "ready") {
			err = fmt.Errorf("its file is %q", text)
		}
		return err
	})
	srv := start(t, embedded.Options{Dir: dir})
	if err := <-ended; err != nil {
		t.Errorf("the orphan ended with %v, want an orderly stop", err)
	}
	if got := postmaster(t, dir); got == cmd.Process.Pid {
		t.Error("the orphan still runs")
	}
	stop(t, srv)

	// A file that a crash of the machine truncated.
	if err := os.WriteFile(filepath.Join(data, "postmaster.pid"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, embedded.Options{Dir: dir})
}

// TestReusedNumber covers lock files that, after a power failure, contain the process id of a living process of PostgreSQL's
// own account. PostgreSQL itself would then refuse to start.
func TestReusedNumber(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := start(t, embedded.Options{Dir: dir})
	mustQuery(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
	stop(t, srv)
	data := filepath.Join(dir, "postgres", "data")
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	// The process must not be a child of PostgreSQL's parent: PostgreSQL recognizes its own ancestors.
	other := exec.Command("cat") // ends with its standard input
	owner := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() == 0 {
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	hold, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hold.Close()
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
	})
	for _, traces := range [][]string{{"postmaster.pid"}, {".s.PGSQL.5432.lock"}, {"postmaster.pid", ".s.PGSQL.5432.lock"}} {
		for _, name := range traces {
			name = filepath.Join(data, name)
			if err := os.WriteFile(name, fmt.Appendf(nil, "%d\n%s\n", other.Process.Pid, data), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(name, int(owner.Uid), int(owner.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		srv := start(t, embedded.Options{Dir: dir})
		if got := mustQuery(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
			t.Errorf("with traces in %v: got %q, want the row", traces, got)
		}
		stop(t, srv)
	}
}

// TestSupervised checks that PostgreSQL is restarted after it was killed.
func TestSupervised(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := start(t, embedded.Options{Dir: dir})
	mustQuery(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
	for range 2 {
		if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the database is back", func() error {
			got, err := query(t.Context(), srv.URL(), "SELECT v FROM kept")
			if err == nil && got != "here" {
				t.Fatalf("after a kill: %q", got)
			}
			return err
		})
	}
}

// TestInterruptedInit checks that the remains of a killed initdb are recreated.
func TestInterruptedInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	half := filepath.Join(dir, "postgres", "data.new")
	if err := os.MkdirAll(filepath.Join(half, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	srv := start(t, embedded.Options{Dir: dir})
	if got := mustQuery(t, srv.URL(), "SELECT 'up'"); got != "up" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("the half-made folder is still there")
	}
}

// script returns a folder with programs that do not belong to PostgreSQL.
func script(t *testing.T, programs map[string]string) string {
	dir := t.TempDir()
	for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const version15 = `echo "postgres (PostgreSQL) 15.0"`

func TestFaults(t *testing.T) {
	t.Parallel()
	full := `echo "initdb: error: could not write file: No space left on device" >&2; exit 1`
	t.Run("no PostgreSQL", func(t *testing.T) {
		t.Parallel()
		wantFault(t, embedded.Options{Dir: t.TempDir(), BinDir: t.TempDir()}, "apt install postgresql")
	})
	t.Run("too old", func(t *testing.T) {
		t.Parallel()
		bin := script(t, map[string]string{"postgres": `echo "postgres (PostgreSQL) 12.9"`, "initdb": "exit 1"})
		wantFault(t, embedded.Options{Dir: t.TempDir(), BinDir: bin}, "13 or newer")
	})
	t.Run("disk full at initdb", func(t *testing.T) {
		t.Parallel()
		bin := script(t, map[string]string{"postgres": version15, "initdb": full})
		wantFault(t, embedded.Options{Dir: t.TempDir(), BinDir: bin}, "is full")
	})
	t.Run("disk full at start", func(t *testing.T) {
		t.Parallel()
		bin := script(t, map[string]string{
			"postgres": `[ "$1" = --version ] && exec echo "postgres (PostgreSQL) 15.0"; echo "FATAL:  could not write lock file: No space left on device" >&2; exit 1`,
			"initdb":   `echo 15 > "$2/PG_VERSION"`,
		})
		wantFault(t, embedded.Options{Dir: t.TempDir(), BinDir: bin}, "is full")
	})
	t.Run("does not start", func(t *testing.T) {
		t.Parallel()
		bin := script(t, map[string]string{
			"postgres": `[ "$1" = --version ] && exec echo "postgres (PostgreSQL) 15.0"; echo "FATAL:  stars are wrong" >&2; exit 1`,
			"initdb":   `echo 15 > "$2/PG_VERSION"`,
		})
		wantFault(t, embedded.Options{Dir: t.TempDir(), BinDir: bin}, "stars are wrong")
	})
	t.Run("data of another version", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "postgres", "data"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "postgres", "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantFault(t, embedded.Options{Dir: dir}, "Install PostgreSQL 9 beside")
	})
	t.Run("not a folder", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantFault(t, embedded.Options{Dir: file}, "--global-config")
	})
	t.Run("start given up", func(t *testing.T) {
		t.Parallel()
		bin := script(t, map[string]string{
			"postgres": `[ "$1" = --version ] && exec echo "postgres (PostgreSQL) 15.0"; exec sleep 1000`,
			"initdb":   `echo 15 > "$2/PG_VERSION"`,
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := embedded.Start(ctx, embedded.Options{Dir: t.TempDir(), BinDir: bin, Logger: quiet}); err == nil || ctx.Err() == nil {
			t.Errorf("got %v before the deadline", err)
		}
	})
}

func wantFault(t *testing.T, o embedded.Options, words string) {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	srv, err := embedded.Start(t.Context(), o)
	if err == nil {
		stop(t, srv)
	}
	if f := fault.As(err); f == nil || !strings.Contains(f.Error(), words) {
		t.Errorf("got %v, want a fault with %q", err, words)
	}
}

// TestFindWrapped checks that a wrapper on PATH does not hide the real programs.
func TestFindWrapped(t *testing.T) {
	want, err := embedded.Find(t.Context(), t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	bin := script(t, map[string]string{"postgres": "exit 1", "pg_config": "echo " + want.BinDir})
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	got, err := embedded.Find(t.Context(), t.TempDir(), "")
	if err != nil || got.BinDir != want.BinDir {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// TestFindWaits checks that programs that are slow, as on a busy machine, are not taken for missing: the server would refuse its data, or
// prefer another version.
func TestFindWaits(t *testing.T) {
	for _, name := range []string{"postgres", "pg_config"} {
		t.Run(name, func(t *testing.T) {
			asked := filepath.Join(t.TempDir(), "asked")
			if err := syscall.Mkfifo(asked, 0o600); err != nil {
				t.Fatal(err)
			}
			bin := script(t, map[string]string{name: "exec 3>" + asked + "; read never <" + asked, "initdb": "exit 1"})
			t.Setenv("PATH", bin+":/usr/bin:/bin")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			found := make(chan error, 1)
			go func() {
				_, err := embedded.Find(ctx, t.TempDir(), "")
				found <- err
			}()
			file, err := os.Open(asked) // returns once the program runs
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			cancel()
			if err := testwait.For(t, "the end of the search", found); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), name+" did not answer") {
				t.Errorf("got %v, want a fault that names the program", err)
			}
		})
	}
}
