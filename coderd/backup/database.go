package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// staging is the PostgreSQL schema in which a backup is restored before it takes the place of the current tables.
const staging = "codermesh_restore"

// own are tables that belong to a running database and not to a backup: goose writes its table itself, and servers
// enter themselves.
var own = []string{"goose_db_version", "servers"}

// Write writes the database into w. Servers may run meanwhile: all rows are those of one snapshot. It returns the
// backup's description.
func Write(ctx context.Context, source database.Source, w io.Writer) (h Header, err error) {
	conn, err := source.Connect(ctx, "codermesh backup", slog.New(slog.DiscardHandler))
	if err != nil {
		return h, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return h, fmt.Errorf("begin snapshot: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	h.Created = time.Now().UTC().Truncate(time.Second)
	if h.Migrations, err = database.Applied(ctx, conn); err != nil {
		return h, err
	}
	if len(h.Migrations) == 0 {
		return h, fault.New(fault.NotFound, "The database has no data of a server.").WithDetail("Check the URL of the database, and start the server once.")
	}
	if err := database.CheckMigrations(h.Migrations); err != nil {
		return h, fault.New(fault.Invalid, "The database belongs to a newer release than this program.").WithDetail("Make the backup with the release that the server runs.")
	}
	if h.Keys, err = keyring.KeysInUse(ctx, dbsqlc.New(tx)); err != nil {
		return h, err
	}
	tables, err := describe(ctx, tx, "")
	if err != nil {
		return h, err
	}
	if h.Sequences, err = sequences(ctx, tx); err != nil {
		return h, err
	}
	e, err := newEncoder(w)
	if err != nil {
		return h, err
	}
	if err := e.line(h); err != nil {
		return h, err
	}
	for _, t := range tables {
		if err := e.line(t); err != nil {
			return h, err
		}
		if _, err := conn.PgConn().CopyTo(ctx, e, "COPY "+t.target("")+" TO STDOUT"); err != nil {
			return h, fmt.Errorf("copy table %s: %w", t.Table, err)
		}
		if err := e.length(0); err != nil {
			return h, err
		}
	}
	return h, e.end()
}

// target returns the table with its columns, for COPY.
func (t table) target(schema string) string {
	name := pgx.Identifier{t.Table}
	if schema != "" {
		name = pgx.Identifier{schema, t.Table}
	}
	columns := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = pgx.Identifier{c}.Sanitize()
	}
	return name.Sanitize() + " (" + strings.Join(columns, ", ") + ")"
}

// describe returns the tables of a PostgreSQL schema, by default the current one, with the columns that are stored and
// not computed.
func describe(ctx context.Context, tx pgx.Tx, schema string) ([]table, error) {
	rows, err := tx.Query(ctx, `SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE c.relkind = 'r' AND c.relnamespace = coalesce(nullif($1, ''), current_schema())::regnamespace AND NOT c.relname = ANY ($2)
		GROUP BY c.relname ORDER BY c.relname`, schema, own)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.Table, &t.Columns)
	})
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return tables, nil
}

// sequences returns the state of every sequence that numbers a column.
func sequences(ctx context.Context, tx pgx.Tx) ([]sequence, error) {
	rows, err := tx.Query(ctx, `SELECT s.oid::regclass::text, t.relname::text, a.attname::text
		FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.classid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
		JOIN pg_class t ON t.oid = d.refobjid JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
		WHERE s.relkind = 'S' AND t.relnamespace = current_schema()::regnamespace AND NOT t.relname = ANY ($1) ORDER BY 2, 3`, own)
	if err != nil {
		return nil, fmt.Errorf("list sequences: %w", err)
	}
	var names []string
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sequence, err error) {
		var name string
		err = row.Scan(&name, &s.Table, &s.Column)
		names = append(names, name)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list sequences: %w", err)
	}
	for i := range found {
		if err := tx.QueryRow(ctx, "SELECT last_value, is_called FROM "+names[i]).Scan(&found[i].Last, &found[i].Called); err != nil {
			return nil, fmt.Errorf("read sequence %s: %w", names[i], err)
		}
	}
	return found, nil
}

// Restore makes the database equal to the backup, or leaves it as it is. No server may run. A database that holds data
// is refused unless overwrite is set, and one that holds only tables of another program always. Overwriting drops all
// that the PostgreSQL schema holds, because the server that filled it may have been of a newer release, whose tables
// this program does not know.
func Restore(ctx context.Context, source database.Source, f *File, overwrite bool) (err error) {
	if err := database.CheckMigrations(f.Header.Migrations); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	conn, err := source.Connect(ctx, "codermesh restore", log)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := database.Exclude(ctx, conn); err != nil {
		return err
	}
	if err := checkTarget(ctx, conn, overwrite); err != nil {
		return err
	}
	// A restore that was killed may have left its schema. The lock keeps others from using it.
	if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+staging+" CASCADE"); err != nil {
		return fmt.Errorf("remove what an earlier restore left: %w", err)
	}
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+staging); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	defer func() {
		if err != nil && !conn.IsClosed() {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			_, dropErr := conn.Exec(clean, "DROP SCHEMA IF EXISTS "+staging+" CASCADE")
			err = errors.Join(err, dropErr)
		}
	}()
	if err := source.Build(ctx, conn, staging, f.Header.Migrations, log); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := load(ctx, tx, f); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, swap)
		if err != nil {
			return fmt.Errorf("replace the tables: %w", err)
		}
		return nil
	})
}

// checkTarget returns a fault if the database must not be overwritten.
func checkTarget(ctx context.Context, conn *pgx.Conn, overwrite bool) error {
	var tables int
	err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND relnamespace = current_schema()::regnamespace").Scan(&tables)
	if err != nil {
		return fmt.Errorf("look for tables: %w", err)
	}
	if tables == 0 {
		return nil
	}
	applied, err := database.Applied(ctx, conn)
	switch {
	case err != nil:
		return err
	case len(applied) == 0:
		return fault.New(fault.Conflict, "The database holds tables of another program.").WithDetail("Create an empty database for the server. Nothing was changed.")
	case !overwrite:
		return fault.New(fault.Conflict, "The database already holds the data of a server.").
			WithDetail("Use an empty database, or replace the data with --overwrite. Nothing was changed.")
	}
	return nil
}

// load fills the tables of the staging schema. Triggers do not run, and foreign keys are checked at the end.
func load(ctx context.Context, tx pgx.Tx, f *File) error {
	tables, err := describe(ctx, tx, staging)
	if err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, "SELECT set_config('search_path', $1, true)", staging).Scan(new(string)); err != nil {
		return fmt.Errorf("enter schema: %w", err)
	}
	rows, err := tx.Query(ctx, `SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
		format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE contype = 'f' AND connamespace = current_schema()::regnamespace ORDER BY conrelid, conname`)
	if err != nil {
		return fmt.Errorf("list foreign keys: %w", err)
	}
	var before, after []string
	var drop, add string
	if _, err := pgx.ForEachRow(rows, []any{&drop, &add}, func() error {
		before, after = append(before, drop), append(after, add)
		return nil
	}); err != nil {
		return fmt.Errorf("list foreign keys: %w", err)
	}
	for _, t := range tables {
		name := pgx.Identifier{t.Table}.Sanitize()
		before = append(before, "ALTER TABLE "+name+" DISABLE TRIGGER USER", "DELETE FROM "+name) // what migrations wrote
		after = append(after, "ALTER TABLE "+name+" ENABLE TRIGGER USER")
	}
	if err := execAll(ctx, tx, before); err != nil {
		return err
	}
	err = f.read(func(t table, rows io.Reader) error {
		i := slices.IndexFunc(tables, func(known table) bool { return known.Table == t.Table })
		if i < 0 || slices.ContainsFunc(t.Columns, func(c string) bool { return !slices.Contains(tables[i].Columns, c) }) || len(t.Columns) != len(tables[i].Columns) {
			return broken(fmt.Errorf("table %q is not as its migrations make it", t.Table))
		}
		tables = slices.Delete(tables, i, i+1) // each is there once
		if _, err := tx.Conn().PgConn().CopyFrom(ctx, rows, "COPY "+t.target(staging)+" FROM STDIN"); err != nil {
			return fmt.Errorf("restore table %s: %w", t.Table, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(tables) > 0 {
		return broken(fmt.Errorf("table %q is missing", tables[0].Table))
	}
	for _, s := range f.Header.Sequences {
		_, err := tx.Exec(ctx, "SELECT setval(pg_get_serial_sequence($1, $2), $3, $4)", pgx.Identifier{s.Table}.Sanitize(), s.Column, s.Last, s.Called)
		if err != nil {
			return fmt.Errorf("restore the sequence of %s.%s: %w", s.Table, s.Column, err)
		}
	}
	return execAll(ctx, tx, after)
}

func execAll(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// swap drops what the current schema holds and moves the contents of the staging schema there, so that the schema keeps
// its owner and its grants. What extensions made stays.
const swap = `DO $$
DECLARE
	target text;
	command text;
BEGIN
	PERFORM set_config('search_path', (SELECT reset_val FROM pg_settings WHERE name = 'search_path'), true);
	target := current_schema();
	FOREACH command IN ARRAY ARRAY(
		SELECT format('DROP %s IF EXISTS %I.%I CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, target, relname)
		FROM pg_class c WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND relnamespace = target::regnamespace
		AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = c.oid AND (deptype = 'e' OR relkind = 'S' AND deptype IN ('a', 'i')))
		UNION ALL SELECT format('DROP ROUTINE IF EXISTS %s CASCADE', p.oid::regprocedure)
		FROM pg_proc p WHERE pronamespace = target::regnamespace AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = p.oid AND deptype = 'e')
		UNION ALL SELECT format('DROP TYPE IF EXISTS %I.%I CASCADE', target, typname)
		FROM pg_type t WHERE typtype IN ('e', 'd') AND typnamespace = target::regnamespace AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = t.oid AND deptype = 'e'))
	LOOP EXECUTE command; END LOOP;
	FOREACH command IN ARRAY ARRAY(
		SELECT format('ALTER ROUTINE %s SET SCHEMA %I', p.oid::regprocedure, target) FROM pg_proc p WHERE pronamespace = '` + staging + `'::regnamespace
		UNION ALL SELECT format('ALTER %s ` + staging + `.%I SET SCHEMA %I', CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, relname, target)
		FROM pg_class c WHERE relnamespace = '` + staging + `'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
		AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = c.oid AND relkind = 'S' AND deptype IN ('a', 'i'))
		UNION ALL SELECT format('ALTER TYPE ` + staging + `.%I SET SCHEMA %I', typname, target)
		FROM pg_type t WHERE typtype IN ('e', 'd') AND typnamespace = '` + staging + `'::regnamespace)
	LOOP EXECUTE command; END LOOP;
	DROP SCHEMA ` + staging + `;
END $$`
