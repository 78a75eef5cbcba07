// Package database owns the connection to PostgreSQL, the only store: opening it, its schema, transactions, and the errors of a
// lost or full database. The queries are generated into dbsqlc. It knows no feature and no HTTP.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/fault"
)

const (
	// minVersion is the oldest supported PostgreSQL, as server_version_num.
	minVersion = 130000
	// waitForStart bounds how long Open waits for a database that does not respond yet.
	waitForStart = time.Minute
	// maxConns is the pool's size unless the URL sets pool_max_conns.
	maxConns = 16
)

// limits bound what a session of the pool may cost, unless the URL sets them.
var limits = map[string]string{
	"application_name":                    "codermesh",
	"statement_timeout":                   "30s",
	"lock_timeout":                        "15s",
	"idle_in_transaction_session_timeout": "60s",
	"timezone":                            "UTC",
}

// DB is an open database. Each of its queries runs separately in the pool; InTx groups them. Safe for concurrent use. While
// PostgreSQL is unreachable every call returns a fault.Unavailable, and when it is back they work again.
type DB struct {
	*dbsqlc.Queries
	Pool *pgxpool.Pool
}

// Open connects, waiting up to a minute for a database that is starting, checks its version and brings its schema up to date.
// Several processes may call it concurrently. Errors that an operator can act on are faults. Close the DB after use.
func Open(ctx context.Context, url string, logger *slog.Logger) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The PostgreSQL URL cannot be read: %w", err).
			WithDetail("It must look like postgres://user:password@host:5432/database?sslmode=require.")
	}
	for name, value := range limits {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if parsed, err := pgx.ParseConfig(url); err == nil && parsed.RuntimeParams["pool_max_conns"] == "" {
		cfg.MaxConns = maxConns
	}
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = 5 * time.Second
	cfg.AfterConnect = registerTypes

	if err := prepare(ctx, cfg.ConnConfig, logger); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	return &DB{Queries: dbsqlc.New(session{pool}), Pool: pool}, nil
}

// Close waits for the connections in use and closes them all.
func (db *DB) Close() { db.Pool.Close() }

// Ping checks that PostgreSQL responds.
func (db *DB) Ping(ctx context.Context) error { return translate(ctx, db.Pool.Ping(ctx)) }

// Dial opens a connection outside the pool, for a caller that keeps it, such as a listener. No statement timeout bounds it.
func (db *DB) Dial(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, patient(db.Pool.Config().ConnConfig))
	return conn, translate(ctx, err)
}

// patient returns cfg without the limits on a single statement.
func patient(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	cfg = cfg.Copy()
	cfg.RuntimeParams["statement_timeout"] = "0"
	cfg.RuntimeParams["lock_timeout"] = "0"
	return cfg
}

// prepare readies the database for the pool: reachable, new enough and migrated.
func prepare(ctx context.Context, cfg *pgx.ConnConfig, logger *slog.Logger) error {
	conn, err := awaitStart(ctx, patient(cfg), logger)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("ask PostgreSQL for its version: %w", translate(ctx, err))
	}
	if err := CheckVersion(version); err != nil {
		return err
	}
	return migrate(ctx, conn, patient(cfg), logger)
}

// CheckVersion returns a fault if a server_version_num belongs to a PostgreSQL that is too old.
func CheckVersion(version int) error {
	if version >= minVersion {
		return nil
	}
	major := fmt.Sprint(version / 10000)
	if version < 100000 { // before 10 the second number was part of the major version
		major += fmt.Sprintf(".%d", version/100%100)
	}
	return fault.New(fault.Invalid, "PostgreSQL %s is not supported: version 13 or newer is required.", major).
		WithDetail("Upgrade it, or omit the PostgreSQL URL to let the server run its own.")
}

// awaitStart connects, and retries while the error may be temporary.
func awaitStart(ctx context.Context, cfg *pgx.ConnConfig, logger *slog.Logger) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, waitForStart)
	defer cancel()
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for warned := false; ; {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() == nil && permanent(err) {
			return nil, fault.New(fault.Invalid, "PostgreSQL refuses the connection: %w", err).
				WithDetail("Check the user, the password and the database in the PostgreSQL URL.")
		}
		if ctx.Err() == nil && !warned {
			logger.Warn("waiting for the database", "addr", cfg.Host, "err", err)
			warned = true
		}
		if retry.Wait(ctx) != nil {
			return nil, fault.New(fault.Unavailable, "PostgreSQL at %s does not answer: %w", cfg.Host, err).
				WithDetail("Start it, or correct the PostgreSQL URL.")
		}
	}
}

// permanent reports whether PostgreSQL answered, and would give the same answer again.
func permanent(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !passing(pg.Code)
}
