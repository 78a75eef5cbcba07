// Package database owns the connection to PostgreSQL, the only store: opening it, its schema, transactions, and the
// errors of a lost or full database. The queries are generated into dbsqlc. It knows no feature and no HTTP.
package database

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// minVersion is the oldest supported PostgreSQL, as server_version_num.
	minVersion = 130000
	// waitForStart bounds how long Open waits for a database that does not respond yet.
	waitForStart = time.Minute
	// noTLS is the driver's error, which has no type, for a PostgreSQL without TLS when sslmode requires it.
	noTLS = "server refused TLS connection"
)

// limits bound what a session of the pool may cost, and tell PostgreSQL how to plan for it, unless the URL sets them.
var limits = map[string]string{
	"application_name":                    "codermesh",
	"statement_timeout":                   "30s",
	"lock_timeout":                        "15s",
	"idle_in_transaction_session_timeout": "60s",
	"timezone":                            "UTC",
	// Databases are in memory or on disks that seek fast: a page of a list is read by an index, not by a scan of the
	// table.
	"random_page_cost": "1.1",
}

// DB is an open database. Each of its queries runs separately in the pool; InTx groups them. Safe for concurrent use.
// While PostgreSQL is unreachable every call returns a fault.Unavailable, and when it is back they work again.
type DB struct {
	*dbsqlc.Queries
	Pool *pgxpool.Pool

	source Source
	limit  time.Duration // bounds each statement, including the wait for a connection; 0: nothing does
}

// Open is Source.Open with the URL alone.
func Open(ctx context.Context, url string, logger *slog.Logger) (*DB, error) {
	return Source{URL: url}.Open(ctx, logger)
}

// Open connects, waiting up to a minute for a database that is starting, checks its version and brings its schema up to
// date. Several processes may call it concurrently. Errors that an operator can act on are faults. Close the DB after
// use.
func (s Source) Open(ctx context.Context, logger *slog.Logger) (*DB, error) {
	cfg, err := s.config()
	if err != nil {
		return nil, err
	}
	for name, value := range limits {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = 5 * time.Second
	cfg.AfterConnect = registerTypes
	cfg.BeforeConnect = s.authenticate

	if err := s.prepare(ctx, cfg.ConnConfig, logger); err != nil {
		return nil, err
	}
	var pool *pgxpool.Pool
	if s.MaxIdle != nil {
		cfg.AfterRelease = func(*pgx.Conn) bool { return int(pool.Stat().IdleConns()) < *s.MaxIdle }
	}
	pool, err = pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	var timeout int64 // milliseconds, however the URL, the role or the database sets it
	if err := pool.QueryRow(ctx, "SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'").Scan(&timeout); err != nil {
		pool.Close()
		return nil, fmt.Errorf("ask PostgreSQL for its limits: %w", translate(ctx, err))
	}
	db := &DB{Pool: pool, source: s, limit: patience(time.Duration(timeout) * time.Millisecond)}
	db.Queries = dbsqlc.New(session{pool, db.limit})
	return db, nil
}

// patience returns how long to wait for the answer to a statement that PostgreSQL ends after timeout. It is a little
// longer, so that it ends only what has no answer at all: the connection leads nowhere, or none is free.
func patience(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return 0
	}
	return timeout + timeout/5 + time.Second
}

// Close waits for the connections in use and closes them all.
func (db *DB) Close() { db.Pool.Close() }

// Ping checks that PostgreSQL responds.
func (db *DB) Ping(ctx context.Context) error { return translate(ctx, db.Pool.Ping(ctx)) }

// Dial opens a connection outside the pool, for a caller that keeps it, such as a listener. No statement timeout bounds
// it.
func (db *DB) Dial(ctx context.Context) (*pgx.Conn, error) {
	conn, err := db.source.connect(ctx, patient(db.Pool.Config().ConnConfig))
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
func (s Source) prepare(ctx context.Context, cfg *pgx.ConnConfig, logger *slog.Logger) error {
	conn, err := s.awaitStart(ctx, patient(cfg), logger)
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
	return s.migrate(ctx, conn, patient(cfg), Migrations(), logger)
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
func (s Source) awaitStart(ctx context.Context, cfg *pgx.ConnConfig, logger *slog.Logger) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, waitForStart)
	defer cancel()
	retry := backoff.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	var last error // of an attempt that the end of ctx did not cut short
	for {
		conn, err := s.connect(ctx, cfg)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() == nil && permanent(err) {
			return nil, &fault.Error{
				Code:    fault.Invalid,
				Message: fmt.Sprintf("PostgreSQL at %s refuses the connection: %s", place(cfg), reason(err)),
				Detail:  "Check the user, the password, the database and sslmode in the PostgreSQL URL.", Cause: err,
			}
		}
		if ctx.Err() == nil && last == nil {
			logger.Warn("waiting for the database", "addr", place(cfg), "err", err)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if retry.Wait(ctx) != nil {
			if fault.As(last) != nil { // there is no password
				return nil, last
			}
			return nil, &fault.Error{
				Code:    fault.Unavailable,
				Message: fmt.Sprintf("PostgreSQL at %s cannot be reached: %s", place(cfg), reason(last)),
				Detail:  "Start it, or correct the PostgreSQL URL.", Cause: last,
			}
		}
	}
}

// place names the server in messages: its address, or the folder of its socket. Of several hosts it is the first.
func place(cfg *pgx.ConnConfig) string {
	if filepath.IsAbs(cfg.Host) {
		return cfg.Host
	}
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

// reason returns why a connection failed, in one line. An attempt that failed in the same way with and without TLS is
// named once.
func reason(err error) string {
	var unique []string
	for _, text := range reasons(err) {
		if !slices.Contains(unique, text) {
			unique = append(unique, text)
		}
	}
	return strings.Join(unique, "; ")
}

// reasons returns the causes of all attempts in err, without the wrapping that repeats the address and the user.
func reasons(err error) (texts []string) {
	if several, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, each := range several.Unwrap() {
			texts = append(texts, reasons(each)...)
		}
		return texts
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return []string{pg.Message}
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return []string{failed.Error()}
	}
	if failed, ok := errors.AsType[*net.DNSError](err); ok {
		return []string{failed.Error()}
	}
	return []string{err.Error()}
}

// permanent reports whether PostgreSQL answered, and would give the same answer again.
func permanent(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return !passing(pg.Code)
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || strings.Contains(err.Error(), noTLS)
}
