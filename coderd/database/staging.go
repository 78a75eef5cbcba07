package database

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Connect opens one connection outside a pool, for a command that needs the schema as it is: nothing is migrated. It
// waits up to a minute for a database that is starting. No limit bounds its statements. command names the caller to
// other users of the database.
func (s Source) Connect(ctx context.Context, command string, logger *slog.Logger) (*pgx.Conn, error) {
	pool, err := s.config()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	cfg := patient(pool.ConnConfig)
	// Text that is exchanged with another database must not depend on settings of either.
	for name, value := range map[string]string{
		"idle_in_transaction_session_timeout": "0", "client_encoding": "UTF8", "datestyle": "ISO, YMD", "intervalstyle": "postgres",
		"bytea_output": "hex", "timezone": "UTC", "extra_float_digits": "1",
		"application_name": fmt.Sprintf("%s %d on %.32s", command, os.Getpid(), host),
	} {
		cfg.RuntimeParams[name] = value
	}
	conn, err := s.awaitStart(ctx, cfg, logger)
	if err != nil {
		return nil, err
	}
	var version int
	if err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		err = fmt.Errorf("ask PostgreSQL for its version: %w", translate(ctx, err))
	} else {
		err = CheckVersion(version)
	}
	if err != nil {
		conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// Exclude keeps servers from using the database until conn ends. It returns the fault Conflict if a server is running.
func Exclude(ctx context.Context, conn *pgx.Conn) error {
	var taken bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(serverLock)).Scan(&taken); err != nil {
		return fmt.Errorf("lock the database: %w", translate(ctx, err))
	}
	if taken {
		return nil
	}
	return fault.New(fault.Conflict, "A server uses this database: %s.", (&Occupancy{}).holder(ctx, conn)).
		WithDetail("Stop all servers of the database first. Nothing was changed.")
}

// Applied returns the numbers of the migrations that the database has, in order; none if it has no schema of ours.
func Applied(ctx context.Context, conn *pgx.Conn) ([]int64, error) {
	s, err := schemaOf(ctx, conn)
	return s.applied, err
}

// CheckMigrations returns a fault if this program cannot build a schema of these migrations.
func CheckMigrations(versions []int64) error {
	known, err := migrationsIn(Migrations())
	if err != nil {
		return err
	}
	for _, version := range versions {
		if !slices.Contains(known, version) {
			return fault.New(fault.Invalid, "The backup was made by a newer release: its schema has migration %d, and this program knows those up to %d.", version, slices.Max(known)).
				WithDetail("Restore it with the release that made it, or a later one. Nothing was changed.")
		}
	}
	if len(versions) == 0 {
		return fault.New(fault.Invalid, "The backup names no schema.").
			WithDetail("Use another backup. Nothing was changed.")
	}
	return nil
}

// Build applies these migrations and no others in the PostgreSQL schema of a name, which exists and is empty. It
// connects as conn does.
func (s Source) Build(ctx context.Context, conn *pgx.Conn, schema string, versions []int64, logger *slog.Logger) error {
	if err := CheckMigrations(versions); err != nil {
		return err
	}
	cfg := conn.Config()
	cfg.RuntimeParams["search_path"] = schema
	building, err := s.connect(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect to build the schema: %w", translate(ctx, err))
	}
	defer building.Close(context.WithoutCancel(ctx))
	return s.migrate(ctx, building, cfg, subset{Migrations(), versions}, logger)
}

// subset is a folder of migrations of which only some are seen.
type subset struct {
	fs.FS
	versions []int64
}

func (s subset) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		return err != nil || !slices.Contains(s.versions, version)
	}), err
}
