package database

import (
	"context"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/internal/fault"
)

// Sizes of a pool that is not sized by the operator. PostgreSQL admits 97 connections by default, and a server needs two outside its pool: three
// servers fit.
const (
	minPool     = 16
	maxPool     = 30
	perPoolCore = 4
)

// Source says where the database is, and how a server connects to it.
type Source struct {
	// URL is a PostgreSQL URL. It may name several hosts, of which target_session_attrs=read-write chooses the primary.
	URL string
	// MaxOpen is the largest number of connections in the pool. 0: pool_max_conns in the URL, else a number that depends on the
	// processors of this machine.
	MaxOpen int
	// MaxIdle is the number of unused connections that the pool keeps; connections that are released simultaneously may exceed it until one
	// is used again. Nil: all. Either way it closes those that were unused for five minutes.
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

// authenticate sets the password of a connection that is about to be opened.
func (s Source) authenticate(ctx context.Context, cfg *pgx.ConnConfig) (err error) {
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
