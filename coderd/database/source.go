package database

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Sizes of a pool that is not sized by the operator. PostgreSQL admits 97 connections by default, and a server needs
// two outside its pool: three servers fit.
const (
	minPool     = 16
	maxPool     = 30
	perPoolCore = 4
)

// Source says where the database is, and how a server connects to it.
type Source struct {
	// URL is a PostgreSQL URL. It may name several hosts, of which target_session_attrs=read-write chooses the primary.
	URL string
	// MaxOpen is the largest number of connections in the pool. 0: pool_max_conns in the URL, else a number that
	// depends on the processors of this machine.
	MaxOpen int
	// MaxIdle is the number of unused connections that the pool keeps; connections that are released simultaneously may
	// exceed it until one is used again. Nil: all. Either way it closes those that were unused for five minutes.
	MaxIdle *int
	// Password returns the password for one new connection. Nil: the URL's. It must be safe for concurrent use.
	Password func(ctx context.Context) (string, error)
}

// config returns the pool's configuration, with the limits that the URL sets.
func (s Source) config() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		return nil, fault.New(fault.Invalid, "The PostgreSQL URL cannot be read: %w", err).
			WithDetail("It must look like postgres://user:password@host:5432/database?sslmode=require.")
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if s.MaxOpen > 0 {
		cfg.MaxConns = int32(s.MaxOpen)
	} else if parsed, err := pgx.ParseConfig(s.URL); err == nil && parsed.RuntimeParams["pool_max_conns"] == "" {
		cfg.MaxConns = int32(min(max(minPool, perPoolCore*runtime.GOMAXPROCS(0)), maxPool))
	}
	cfg.MinConns, cfg.MinIdleConns = min(cfg.MinConns, cfg.MaxConns), min(cfg.MinIdleConns, cfg.MaxConns)
	return cfg, nil
}

// authenticate readies a connection that is about to be opened: it gets its password, and its settings once it is open.
func (s Source) authenticate(ctx context.Context, cfg *pgx.ConnConfig) (err error) {
	setAfterwards(cfg)
	if s.Password != nil {
		cfg.Password, err = s.Password(ctx)
	}
	return err
}

// connect opens a connection outside the pool.
func (s Source) connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg = cfg.Copy()
	if err := s.authenticate(ctx, cfg); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// atStart are the parameters that go into the first message of a connection. PgBouncer refuses others there that it
// does not know.
var atStart = []string{"application_name", "client_encoding", "datestyle", "options", "replication", "timezone"}

// setAfterwards moves the other parameters of a connection into a statement that follows its start, in one round trip.
func setAfterwards(cfg *pgx.ConnConfig) {
	var calls []string
	var values [][]byte
	for name, value := range cfg.RuntimeParams {
		if slices.Contains(atStart, strings.ToLower(name)) {
			continue
		}
		delete(cfg.RuntimeParams, name)
		values = append(values, []byte(name), []byte(value))
		calls = append(calls, fmt.Sprintf("set_config($%d, $%d, false)", len(values)-1, len(values)))
	}
	if calls == nil {
		return
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.ExecParams(ctx, "SELECT "+strings.Join(calls, ", "), values, nil, nil, nil).Read().Err
	}
}

// checkPooler returns a fault if a pooler gives the session of conn to other clients between its statements: locks and
// notifications, which belong to sessions, would get lost. A pooler that is busy with other clients may hide that.
func (s Source) checkPooler(ctx context.Context, conn *pgx.Conn, cfg *pgx.ConnConfig) error {
	session, err := backendPID(ctx, conn)
	if err != nil || session == conn.PgConn().PID() { // PostgreSQL gave the number at the start: there is no pooler
		return err
	}
	other, err := s.connect(ctx, cfg)
	if err != nil {
		return translate(ctx, err)
	}
	defer other.Close(context.WithoutCancel(ctx))
	shared, err := backendPID(ctx, other)
	if err != nil || shared != session {
		return err
	}
	return fault.New(fault.Invalid, "The pooler at %s does not keep sessions, which the server's locks and notifications require.", place(cfg)).
		WithDetail("For PgBouncer, set pool_mode = session for this database, or name PostgreSQL itself in the PostgreSQL URL.")
}

// backendPID asks for the process of PostgreSQL that answers, without a prepared statement, which belongs to a session
// too.
func backendPID(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid); err != nil {
		return 0, fmt.Errorf("ask PostgreSQL for its process: %w", translate(ctx, err))
	}
	return pid, nil
}
