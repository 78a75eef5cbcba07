package backup_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/backup"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// fingerprint returns everything that a database holds and how it is defined, one line each.
func fingerprint(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT format('%s %s', c.relname, query_to_xml(format('SELECT * FROM %I t ORDER BY t::text', c.relname), true, true, '')::text)
			FROM pg_class c WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname NOT IN ('goose_db_version', 'servers')
		UNION ALL SELECT format('column %s.%s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attgenerated)
			FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
		UNION ALL SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT format('trigger %s %s', pg_get_triggerdef(oid), tgenabled) FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT format('routine %s', pg_get_functiondef(oid)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('view %s %s', viewname, definition) FROM pg_views WHERE schemaname = 'public'
		UNION ALL SELECT format('sequence %s %s', sequencename, last_value) FROM pg_sequences WHERE schemaname = 'public' AND sequencename NOT LIKE 'goose%'
		UNION ALL SELECT format('schema %s', nspname) FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%'
		UNION ALL SELECT format('migration %s', version_id) FROM goose_db_version`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// filled returns a database with rows that are hard to copy: special characters, bytes, identities, a cycle of foreign keys.
func filled(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	url = dbtest.URL(t)
	conn = connect(t, url)
	exec(t, conn,
		`INSERT INTO settings (key, value) VALUES ('odd', decode('005c0a0d09ff', 'hex')), (E'tab\tnewline\nbackslash\\ \\. end', '')`,
		`INSERT INTO users (id, username, email, password_hash) SELECT gen_random_uuid(), 'user' || n, 'user' || n || '@example.com', 'x' FROM generate_series(1, 300) n`,
	)
	return url, conn
}

func write(t *testing.T, url string) []byte {
	t.Helper()
	var file bytes.Buffer
	if _, err := backup.Write(t.Context(), database.Source{URL: url}, &file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func check(t *testing.T, file []byte) *backup.File {
	t.Helper()
	f, err := backup.Check(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestRestore checks that a restored database has the same data and the same schema, in an empty database and in one with other data.
func TestRestore(t *testing.T) {
	t.Parallel()
	url, conn := filled(t)
	want := fingerprint(t, conn)
	file := check(t, write(t, url))
	if time.Since(file.Header.Created).Abs() > time.Hour || len(file.Header.Migrations) == 0 {
		t.Errorf("got header %+v", file.Header)
	}

	empty := dbtest.EmptyURL(t)
	if err := backup.Restore(t.Context(), database.Source{URL: empty}, file, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, fingerprint(t, connect(t, empty))); diff != "" {
		t.Errorf("in an empty database (-want +got):\n%s", diff)
	}
	db, err := database.Open(t.Context(), empty, discard)
	if err != nil {
		t.Fatalf("a server cannot open the restored database: %v", err)
	}
	db.Close()

	// Restored again over other data, the same.
	exec(t, connect(t, empty), "DELETE FROM settings", "INSERT INTO settings (key, value) VALUES ('other', 'x')")
	before := fingerprint(t, connect(t, empty))
	if err := backup.Restore(t.Context(), database.Source{URL: empty}, file, false); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("over data: got %v, want a conflict", err)
	}
	if diff := cmp.Diff(before, fingerprint(t, connect(t, empty))); diff != "" {
		t.Errorf("a refused restore changed the database (-want +got):\n%s", diff)
	}
	if err := backup.Restore(t.Context(), database.Source{URL: empty}, file, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, fingerprint(t, connect(t, empty))); diff != "" {
		t.Errorf("over other data (-want +got):\n%s", diff)
	}
}

// TestSnapshot checks that a backup contains one moment, although the database changes while it is written.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	url, conn := filled(t)
	want := fingerprint(t, conn)
	var file bytes.Buffer
	changed := false
	_, err := backup.Write(t.Context(), database.Source{URL: url}, writer(func(p []byte) (int, error) {
		if !changed { // the first bytes are written before the first table is read
			changed = true
			exec(t, conn, "DELETE FROM users", "DELETE FROM settings")
		}
		return file.Write(p)
	}))
	if err != nil || !changed {
		t.Fatalf("changed %t: %v", changed, err)
	}
	empty := dbtest.EmptyURL(t)
	if err := backup.Restore(t.Context(), database.Source{URL: empty}, check(t, file.Bytes()), false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, fingerprint(t, connect(t, empty))); diff != "" {
		t.Errorf("got a later moment (-want +got):\n%s", diff)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestRestoreRefused checks that a restore changes nothing in a database of another program, or while a server runs.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	url, _ := filled(t)
	file := check(t, write(t, url))

	foreign := dbtest.EmptyURL(t)
	exec(t, connect(t, foreign), "CREATE TABLE theirs ()")
	err := backup.Restore(t.Context(), database.Source{URL: foreign}, file, true)
	if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "another program") {
		t.Errorf("another program's database: got %v", err)
	}

	occupied, err := database.Source{URL: url}.Occupy(t.Context(), discard, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	err = backup.Restore(t.Context(), database.Source{URL: url}, file, true)
	if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "codermesh server") {
		t.Errorf("a running server's database: got %v", err)
	}
}

// TestRestoreFails checks that a restore that fails half-way leaves the database as it was.
func TestRestoreFails(t *testing.T) {
	t.Parallel()
	url, conn := filled(t)
	exec(t, conn, "ALTER TABLE settings DROP CONSTRAINT settings_pkey", "INSERT INTO settings (key, value) VALUES ('odd', '')") // two rows with one key
	file := check(t, write(t, url))
	before := fingerprint(t, conn)
	if err := backup.Restore(t.Context(), database.Source{URL: url}, file, true); err == nil || !strings.Contains(err.Error(), "settings") {
		t.Errorf("got %v, want an error about settings", err)
	}
	if diff := cmp.Diff(before, fingerprint(t, conn)); diff != "" {
		t.Errorf("the database has changed (-want +got):\n%s", diff)
	}
}

// TestCheck checks that every file is refused that is not exactly what was written.
func TestCheck(t *testing.T) {
	t.Parallel()
	url, _ := filled(t)
	file := write(t, url)
	for name, bad := range map[string][]byte{
		"empty":                {},
		"foreign":              []byte("PGDMP and what follows"),
		"newer":                append([]byte("codermesh backup 2\n"), file[19:]...),
		"only begun":           file[:30],
		"cut off":              file[:len(file)-1],
		"cut in half":          file[:len(file)/2],
		"longer":               append(slices.Clone(file), 0),
		"changed":              flip(file, len(file)/2),
		"checksum":             flip(file, len(file)-1),
		"no contents":          sum([]byte("codermesh backup 1\n")),
		"cut, with a checksum": sum(file[:len(file)/2]),
	} {
		if _, err := backup.Check(bytes.NewReader(bad), int64(len(bad))); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want a fault", name, err)
		}
	}
	if _, err := backup.Write(t.Context(), database.Source{URL: dbtest.EmptyURL(t)}, io.Discard); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("backup of an empty database: got %v", err)
	}
	full := errors.New("no space left")
	if _, err := backup.Write(t.Context(), database.Source{URL: url}, writer(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("backup to a full disk: got %v", err)
	}
}

// TestNewerSchema checks that a backup of a later release is refused before anything changes.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	url, conn := filled(t)
	file := check(t, write(t, url))
	file.Header.Migrations = append(file.Header.Migrations, 9999)
	before := fingerprint(t, conn)
	err := backup.Restore(t.Context(), database.Source{URL: url}, file, true)
	if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "9999") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(before, fingerprint(t, conn)); diff != "" {
		t.Errorf("the database has changed (-want +got):\n%s", diff)
	}
}

// TestOlderSchema checks that a backup of an earlier release is restored with that release's schema, from which a server migrates.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	_, now := filled(t)
	newest, err := database.Applied(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	older := newest[:len(newest)-1]
	url := dbtest.EmptyURL(t)
	conn := connect(t, url)
	if err := (database.Source{URL: url}).Build(t.Context(), conn, "public", older, discard); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `INSERT INTO settings (key, value) VALUES ('kept', 'x')`)
	file := check(t, write(t, url))
	if diff := cmp.Diff(older, file.Header.Migrations); diff != "" {
		t.Errorf("migrations (-want +got):\n%s", diff)
	}
	target := dbtest.URL(t) // of the newest schema
	if err := backup.Restore(t.Context(), database.Source{URL: target}, file, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fingerprint(t, conn), fingerprint(t, connect(t, target))); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	db, err := database.Open(t.Context(), target, discard)
	if err != nil {
		t.Fatalf("a server cannot open the restored database: %v", err)
	}
	defer db.Close()
	if value, err := db.GetSetting(t.Context(), "kept"); err != nil || string(value) != "x" {
		t.Errorf("got %q, %v", value, err)
	}
}

func flip(file []byte, at int) []byte {
	file = slices.Clone(file)
	file[at] ^= 1
	return file
}

// sum appends the checksum.
func sum(file []byte) []byte {
	s := sha256.Sum256(file)
	return append(slices.Clone(file), s[:]...)
}
