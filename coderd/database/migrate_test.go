package database_test

import (
	"context"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// release returns the migrations of a program with all of this one's but those that are named without SQL, and with the others.
func release(t *testing.T, changes map[string]string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(database.Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(database.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	for name, sql := range changes {
		if sql == "" {
			delete(files, name)
			continue
		}
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql)}
	}
	return files
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// TestMissedMigration checks that a migration is applied to a schema that has a later one already: the two were developed at the same time.
func TestMissedMigration(t *testing.T) {
	t.Parallel()
	url := dbtest.EmptyURL(t)
	// 0059 builds on 0042.
	if err := database.Migrate(t.Context(), url, release(t, map[string]string{"0042_lists.sql": "", "0059_workspace_order.sql": ""}), quiet); err != nil {
		t.Fatal(err)
	}
	db := open(t, url)
	if _, err := db.Pool.Exec(t.Context(), "SELECT owner_key FROM workspaces"); err != nil {
		t.Errorf("without the missed migration: %v", err)
	}
}

const expand = "CREATE TABLE later (id bigint);"

// TestOlderProgram checks that a program runs on the schema of a newer one, unless that has removed what the older program needs.
func TestOlderProgram(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	conn := connect(t, url)
	must := func(files fs.FS) {
		t.Helper()
		if err := database.Migrate(t.Context(), url, files, quiet); err != nil {
			t.Fatal(err)
		}
	}
	must(release(t, map[string]string{"9000_expand.sql": expand}))
	open(t, url)
	must(release(t, map[string]string{"9000_expand.sql": expand, "9001_contract.sql": "SELECT require_program(9000); ALTER TABLE later DROP COLUMN id;"}))
	must(release(t, map[string]string{"9000_expand.sql": expand})) // it knows enough
	_, err := database.Open(t.Context(), url, quiet)
	if f := fault.As(err); f == nil || f.Code != fault.Invalid || !strings.Contains(f.Message, "9001") || !strings.Contains(f.Message, "newer release") {
		t.Errorf("a program that knows too little: got %v", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT require_program(46)"); err != nil {
		t.Fatal(err)
	}
	if _, err := database.Open(t.Context(), url, quiet); err == nil {
		t.Error("a later migration that needs less lets older programs in again")
	}
}

// TestContractWaitsForServers checks that a schema loses nothing that a running server needs.
func TestContractWaitsForServers(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	conn := connect(t, url)
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	next := release(t, map[string]string{"9000_expand.sql": expand, "9001_contract.sql": "SELECT require_program(9000); DROP TABLE later;"})
	do("INSERT INTO servers (id, url, schema, beat_at) SELECT gen_random_uuid(), url, schema, now() + interval '1 day' FROM (VALUES ('http://192.0.2.1:3000', 46), ('http://192.0.2.2:3000', 9000)) s (url, schema)")
	err := database.Migrate(t.Context(), url, next, quiet)
	if f := fault.As(err); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Message, "http://192.0.2.1:3000") || f.Detail == "" {
		t.Errorf("beside an older server: got %v", err)
	}
	do("SELECT FROM later") // what that server needs
	open(t, url)            // as it would start again
	do("UPDATE servers SET beat_at = now() - interval '1 minute' WHERE schema = 46")
	if err := database.Migrate(t.Context(), url, next, quiet); err != nil {
		t.Errorf("after the older server ended: %v", err)
	}
}

// contracts matches statements after which an older program may fail. A column without a default fails its inserts.
var contracts = regexp.MustCompile(`(?i)\b(DROP\s+(TABLE|COLUMN|VIEW|DEFAULT)|RENAME|SET\s+NOT\s+NULL|ALTER\s+COLUMN\s+\w+\s+(SET\s+DATA\s+)?TYPE|` +
	`ADD\s+COLUMN\s+(IF\s+NOT\s+EXISTS\s+)?\w+\s+[^,;]*NOT\s+NULL)\b[^,;]*`)

// contracting returns the first statement of a migration after which an older program may fail, or "" if there is none or the migration keeps such
// programs out.
func contracting(sql string) string {
	sql = regexp.MustCompile(`--.*`).ReplaceAllString(sql, "")
	if strings.Contains(sql, "require_program(") {
		return ""
	}
	for _, statement := range contracts.FindAllString(sql, -1) {
		if !regexp.MustCompile(`(?i)\b(DEFAULT\s+[^,;]|GENERATED\b)`).MatchString(statement) || strings.HasPrefix(strings.ToUpper(statement), "DROP") {
			return statement
		}
	}
	return ""
}

// TestMigrationsExpand checks that migrations which remove what an older program needs say so, by a call of require_program.
func TestMigrationsExpand(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"ALTER TABLE a ADD COLUMN b text NOT NULL DEFAULT '', ADD COLUMN c text": false,
		"ALTER TABLE a ADD COLUMN b text NOT NULL":                               true,
		"ALTER TABLE a ADD COLUMN c int, DROP COLUMN b":                          true,
		"ALTER TABLE a ALTER COLUMN b SET DATA TYPE bigint":                      true,
		"ALTER TABLE a ALTER b DROP DEFAULT":                                     true,
		"ALTER TABLE a RENAME b TO c":                                            true,
		"DROP INDEX a; -- DROP TABLE b":                                          false,
		"SELECT require_program(50); DROP TABLE a":                               false,
	} {
		if got := contracting(sql); (got != "") != want {
			t.Errorf("%s: got %q, want one: %t", sql, got, want)
		}
	}
	names, err := fs.Glob(database.Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(database.Migrations(), name)
		if err != nil {
			t.Fatal(err)
		}
		if statement := contracting(string(text)); statement != "" && name > "0047" { // older programs than 46 refuse any newer schema
			t.Errorf("%s has %q, after which an older server may fail. Do that in a later release, after a call of require_program", name, statement)
		}
	}
}

// waiting receives a message when a migration gives way to other transactions.
type waiting struct {
	slog.Handler
	seen chan string
}

func (w waiting) Enabled(context.Context, slog.Level) bool { return true }

func (w waiting) Handle(_ context.Context, r slog.Record) error {
	select {
	case w.seen <- r.Message:
	default:
	}
	return nil
}

// TestMigrationGivesWay checks that a migration which waits for a long transaction, such as a dump, does not keep other servers waiting.
func TestMigrationGivesWay(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	dump, server := connect(t, url), open(t, url)
	tx, err := dump.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE users IN ACCESS SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	seen, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- database.Migrate(t.Context(), url, release(t, map[string]string{"9000_expand.sql": "ALTER TABLE users ADD COLUMN later text;"}),
			slog.New(waiting{slog.DiscardHandler, seen}))
	}()
	if message := <-seen; !strings.HasPrefix(message, "waiting for long transactions") {
		t.Errorf("logged %q", message)
	}
	if _, err := server.Pool.Exec(t.Context(), "SELECT FROM users"); err != nil {
		t.Errorf("another server's query: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := server.Pool.Exec(t.Context(), "SELECT later FROM users"); err != nil {
		t.Errorf("after the migration: %v", err)
	}
}
