package database

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/codermesh/codermesh/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that a process holds while it migrates. The number is arbitrary.
const migrationLock = 0x636f6465726d6573

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

// migrate brings the schema up to date. A second process waits for the first, and finds nothing to do.
func migrate(ctx context.Context, conn *pgx.Conn, cfg *pgx.ConnConfig, logger *slog.Logger) error {
	newest, err := newestMigration()
	if err != nil {
		return err
	}
	current, err := schemaVersion(ctx, conn)
	if err != nil || current == newest {
		return err
	}
	if current > newest {
		return newerSchema(current, newest)
	}

	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
		return fmt.Errorf("lock the schema: %w", translate(ctx, err))
	}
	// The caller closes the connection, which releases the lock.
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, Migrations(), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	start := time.Now()
	done, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate the schema from version %d to %d: %w", current, newest, translate(ctx, err))
	}
	if len(done) > 0 {
		logger.Info("database schema migrated", "from", current, "to", newest, "duration", time.Since(start))
	}
	// A newer program may have migrated first.
	if current, err = schemaVersion(ctx, conn); err == nil && current > newest {
		return newerSchema(current, newest)
	}
	return err
}

// schemaVersion returns the newest applied migration, or 0 for an empty database.
func schemaVersion(ctx context.Context, conn *pgx.Conn) (version int64, err error) {
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&exists); err != nil {
		return 0, fmt.Errorf("look for the schema: %w", translate(ctx, err))
	}
	if !exists {
		return 0, nil
	}
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+versionTable+" WHERE is_applied").Scan(&version); err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", translate(ctx, err))
	}
	return version, nil
}

func newestMigration() (int64, error) {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("list migrations: %w", cmp.Or(err, fs.ErrNotExist))
	}
	var version int64
	number, _, _ := strings.Cut(path.Base(slices.Max(names)), "_")
	if _, err := fmt.Sscanf(number, "%d", &version); err != nil {
		return 0, fmt.Errorf("read the number of migration %s: %w", number, err)
	}
	return version, nil
}

func newerSchema(current, ours int64) error {
	return fault.New(fault.Invalid, "This database belongs to a newer release: its schema is version %d, and this program knows %d.", current, ours).
		WithDetail("Start the newer release again, or restore a backup that was made before the upgrade.")
}
