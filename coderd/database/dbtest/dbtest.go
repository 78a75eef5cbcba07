//go:build unix

// Package dbtest gives tests a real PostgreSQL: one server per test process with one database per test, cloned from a
// template with the whole schema. It runs no goroutines, so leak detectors see only the code under test.
//
// Its files are in memory if the machine has enough: most of the cost of a database is the creation of its 700 files.
//
// The server is the child of a shell that waits until this process has ended, in whatever way, then stops the server
// and removes its files. Nothing is left behind, even after a crash or a kill.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

// startLimit bounds how long the server may take to start. It is never reached unless a test would hang.
const startLimit = time.Minute

const template = "migrated"

var (
	server  = sync.OnceValues(start)
	counter atomic.Int64
)

// process is the test server: the folder of its socket, how it copies databases fastest, and the shell that runs it,
// which ends the server when its standard input closes: when this process ends.
type process struct {
	socket   string
	strategy string
	stdin    *os.File
	cmd      *exec.Cmd

	mu    sync.Mutex
	admin *pgx.Conn // makes and drops databases: a connection of its own for each takes as long as the work
}

// New returns an empty database with the whole schema, for this test alone. It is dropped when the test ends.
func New(t testing.TB) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), URL(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// URL returns the URL of a new database like New's, for tests that open it themselves.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, template)
}

// EmptyURL returns the URL of a new database without a schema.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, "template0")
}

// NewerURL returns the URL of a database that a program of a newer release has migrated to migration 9999, and that
// needs such a program.
func NewerURL(t testing.TB) string {
	t.Helper()
	url := URL(t)
	if err := run(t.Context(), url, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true); DROP TABLE schema_support"); err != nil {
		t.Fatalf("change the schema of the test database: %v", err)
	}
	return url
}

// SkewedURL returns the URL of a database whose clock differs from this machine's by an interval, for example "-90
// seconds".
func SkewedURL(t testing.TB, interval string) string {
	t.Helper()
	url := URL(t)
	// A function of this name in a schema that comes first replaces the database's clock.
	if err := run(t.Context(), url, `CREATE SCHEMA skew;
		CREATE FUNCTION skew.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.now() + interval '`+interval+`' $$;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = skew, pg_catalog, public', current_database()); END $$`); err != nil {
		t.Fatalf("change the clock of the test database: %v", err)
	}
	return url
}

// NewerServerURL returns the URL of a database that a server of a newer release is using, which does not understand
// this program.
func NewerServerURL(t testing.TB) string {
	t.Helper()
	url := URL(t)
	if err := run(t.Context(), url, `INSERT INTO servers (id, url, version, link_version, min_link_version, state_keys, schema, beat_at)
		VALUES (gen_random_uuid(), 'http://192.0.2.1:3000', 'v9.0.0', 999, 999, '{}', 0, now() + interval '1 day')`); err != nil {
		t.Fatalf("add a server to the test database: %v", err)
	}
	return url
}

func create(t testing.TB, from string) string {
	t.Helper()
	pg, err := server()
	if err != nil {
		t.Fatalf("start PostgreSQL for tests: %v", err)
	}
	name := fmt.Sprintf("test_%d", counter.Add(1))
	if err := pg.do(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from+pg.strategy); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has already ended.
		if err := pg.do(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop test database: %v", err)
		}
	})
	return address(pg.socket, name)
}

func address(socket, name string) string {
	u := url.URL{Scheme: "postgres", User: url.User("coder"), Path: "/" + name}
	u.RawQuery = url.Values{"host": {socket}, "port": {"5432"}}.Encode()
	return u.String()
}

// do runs a statement that makes or drops a database, one at a time: PostgreSQL refuses to copy a template that is
// being copied.
func (p *process) do(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin == nil || p.admin.IsClosed() { // such as after a test whose context ended meanwhile
		conn, err := pgx.Connect(ctx, address(p.socket, "postgres"))
		if err != nil {
			return err
		}
		p.admin = conn
	}
	_, err := p.admin.Exec(ctx, sql)
	return err
}

func run(ctx context.Context, url, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// memoryFolder returns a folder in memory with room for a server, or "" if there is none.
func memoryFolder() string {
	const folder, room = "/dev/shm", 1 << 30 // a container may have 64 MB only
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil || uint64(fs.Bavail)*uint64(fs.Bsize) < room {
		return ""
	}
	return folder
}

// watch runs the server until this process closes its standard input, or has ended: with a checkpoint if the line
// "stop" comes before, which keeps the folder, and otherwise at once. $1 is its folder; the remaining arguments are the
// server's command.
const watch = `
dir=$1; shift
"$@" </dev/null &
pg=$!
if read -r stop; then
	kill -INT "$pg"
	wait "$pg"
	exit
fi
kill -QUIT "$pg"
wait "$pg"
rm -rf -- "$dir"
`

// start runs a server on a prepared folder.
func start() (*process, error) {
	memory := memoryFolder()
	// The path must be short enough for the socket's address; a test's own folder has a long name.
	parent, err := os.MkdirTemp(memory, "pgtest-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	install, err := embedded.Find(ctx, parent, "")
	if err != nil {
		return nil, err
	}
	data := parent + "-data" // a sibling, so that its owner can remove it entirely
	if err := os.Remove(parent); err != nil {
		return nil, err
	}
	settings := []string{"max_connections=400", "wal_init_zero=off", "wal_recycle=off"}
	if memory != "" {
		settings = append(settings, "shared_buffers=64MB") // the files are as fast, and need no second copy
	}
	settings = append(settings, embedded.Volatile...)
	if err := provide(install, data, settings); err != nil {
		return nil, err
	}
	pg, err := launch(install, data, settings)
	if err != nil {
		return nil, err
	}
	if memory != "" && install.Major >= 15 {
		pg.strategy = " STRATEGY FILE_COPY" // on a disk, slower than the default
	}
	return pg, nil
}

// launch runs a server on a folder, and returns when it is ready.
func launch(install embedded.Install, data string, settings []string) (*process, error) {
	cmd, closeAfter, err := install.Command(data, settings...)
	if err != nil {
		return nil, err
	}
	defer closeAfter()
	cmd.Args = append([]string{"sh", "-c", watch, "sh", data}, cmd.Args...)
	if cmd.Path, err = exec.LookPath("sh"); err != nil {
		return nil, err
	}
	stdin, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(data, "log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, log, log
	err = cmd.Start()
	stdin.Close()
	log.Close()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := awaitReady(ctx, data); err != nil {
		return nil, err
	}
	return &process{socket: data, stdin: writer, cmd: cmd}, nil
}

// end stops the server and waits for its end. The folder stays.
func (p *process) end() error {
	_, err := p.stdin.WriteString("stop\n")
	return errors.Join(err, p.stdin.Close(), p.cmd.Wait())
}

func awaitReady(ctx context.Context, data string) error {
	for ctx.Err() == nil {
		status, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		if lines := strings.Split(string(status), "\n"); err == nil && len(lines) > 7 &&
			strings.TrimSpace(lines[7]) == "ready" {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	log, err := os.ReadFile(filepath.Join(data, "log"))
	if err != nil {
		return fmt.Errorf("PostgreSQL did not become ready: %w", errors.Join(ctx.Err(), err))
	}
	return fmt.Errorf("PostgreSQL did not become ready: %w: %s", ctx.Err(), log)
}
