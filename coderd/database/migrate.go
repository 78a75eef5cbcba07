package database

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that a process holds while it migrates. The number is arbitrary.
const migrationLock = 0x636f6465726d6573

// tableWait is how long a migration waits for the use of a table, and so delays other servers.
const tableWait = 2 * time.Second

// versionTable is the table in which goose records versions.
const versionTable = "goose_db_version"

// Migrations returns the schema's files, for tests that need to know when the schema changed.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return sub
}

// ProgramSchema returns the number of the newest migration that this program knows.
func ProgramSchema() int64 {
	known, err := migrationsIn(Migrations())
	if err != nil {
		panic(err) // the files are compiled in
	}
	return slices.Max(known)
}

// migrate applies the files that have not been applied. A second process waits for the first, and finds nothing to do.
//
// The schema may have migrations that this program does not know, of a newer program: servers of two releases run
// beside each other during an upgrade. That is refused if one of them needs a newer program.
func (s Source) migrate(
	ctx context.Context, conn *pgx.Conn, cfg *pgx.ConnConfig, files fs.FS, logger *slog.Logger,
) error {
	known, err := migrationsIn(files)
	if err != nil {
		return err
	}
	applied, err := schemaOf(ctx, conn)
	if err != nil {
		return err
	}
	if err := applied.admits(known); err != nil {
		return err
	}
	if applied.has(known) {
		return nil
	}

	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("lock the schema: %w", translate(ctx, err))
	}
	// The caller closes the connection, which releases the lock.
	cfg = cfg.Copy()
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(tableWait.Milliseconds(), 10)
	db := stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(s.authenticate))
	defer db.Close()
	// Migrations of branches that are developed at the same time come in any order.
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithAllowOutofOrder(true),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	start := time.Now()
	done, err := up(ctx, provider, logger)
	if err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == codeOlderServer {
			return olderServer(pg.Message)
		}
		return fmt.Errorf("migrate the schema from version %d to %d: %w", applied.newest(), slices.Max(known),
			translate(ctx, err))
	}
	if len(done) > 0 {
		logger.Info("database schema migrated", "from", applied.newest(), "to", slices.Max(known), "duration",
			time.Since(start))
	}
	// A newer program may have migrated first.
	if applied, err = schemaOf(ctx, conn); err != nil {
		return err
	}
	return applied.admits(known)
}

// up applies what is missing. A change of a table waits for all transactions that use it, such as a dump of the
// database, and other servers' queries wait behind it. So it gives up after tableWait, lets these queries pass, and
// tries again until ctx ends.
func up(ctx context.Context, provider *goose.Provider, logger *slog.Logger) (done []*goose.MigrationResult, err error) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for warned := false; ; warned = true {
		applied, err := provider.Up(ctx)
		done = append(done, applied...)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			done = append(done, partial.Applied...)
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != codeLockNotAvailable {
			return done, err
		}
		if !warned {
			logger.Warn("waiting for long transactions to end before the schema is migrated", "err", err)
		}
		if waitErr := retry.Wait(ctx); waitErr != nil {
			return done, err
		}
	}
}

// schema describes the schema of a database.
type schema struct {
	applied       []int64 // migrations, in order; none in an empty database
	oldestProgram int64   // the newest migration that a program must know to run on this schema; 0: all of them
}

// has reports whether all these migrations were applied.
func (s schema) has(known []int64) bool {
	return !slices.ContainsFunc(known, func(version int64) bool { return !slices.Contains(s.applied, version) })
}

// admits returns a fault if a program that knows these migrations, and no others, cannot run on the schema.
func (s schema) admits(known []int64) error {
	foreign := slices.DeleteFunc(slices.Clone(s.applied),
		func(version int64) bool { return slices.Contains(known, version) })
	newest := slices.Max(known)
	if len(foreign) == 0 || s.oldestProgram != 0 && s.oldestProgram <= newest {
		return nil
	}
	return fault.New(fault.Invalid, "This database belongs to a newer release: its schema has migration %d, and this program knows those up to %d.", slices.Max(foreign), newest).
		WithDetail("Start the newer release again, or restore a backup that was made before the upgrade.")
}

func (s schema) newest() int64 {
	if len(s.applied) == 0 {
		return 0
	}
	return slices.Max(s.applied)
}

func schemaOf(ctx context.Context, conn *pgx.Conn) (s schema, err error) {
	var migrated, marked bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, to_regclass('schema_support') IS NOT NULL", versionTable).Scan(&migrated, &marked); err != nil {
		return schema{}, fmt.Errorf("look for the schema: %w", translate(ctx, err))
	}
	if !migrated {
		return schema{}, nil
	}
	if err := conn.QueryRow(ctx, "SELECT coalesce(array_agg(version_id ORDER BY version_id), '{}') FROM "+versionTable+" WHERE is_applied AND version_id > 0").Scan(&s.applied); err != nil {
		return schema{}, fmt.Errorf("read the schema's migrations: %w", translate(ctx, err))
	}
	if marked {
		if err := conn.QueryRow(ctx, "SELECT oldest_program FROM schema_support").Scan(&s.oldestProgram); err != nil {
			return schema{}, fmt.Errorf("read which programs may use the schema: %w", translate(ctx, err))
		}
	}
	return s, nil
}

// migrationsIn returns the numbers of the migrations in files, of which there is at least one.
func migrationsIn(files fs.FS) (versions []int64, err error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("list migrations: %w", cmp.Or(err, fs.ErrNotExist))
	}
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the number of migration %s: %w", name, err)
		}
		versions = append(versions, version)
	}
	return versions, nil
}

// olderServer is the fault of a migration that removes what the server at url still uses.
func olderServer(url string) error {
	return fault.New(fault.Conflict, "The server at %s runs a release that cannot use the schema of this one.", url).
		WithDetail("Upgrade it to a release between the two, or stop all servers of its release. Then start this one again.")
}
