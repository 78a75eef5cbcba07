package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/backoff"
)

// txTries bounds how often a transaction runs if PostgreSQL aborts it in favor of another.
const txTries = 5

// InTx runs fn in one READ COMMITTED transaction. It commits if fn returns nil; otherwise it rolls back and returns
// fn's error. If PostgreSQL aborts the transaction because of a deadlock or a serialization conflict, InTx runs fn
// again from the start, at most five times in all, so fn must have no effects outside q. fn must not use db itself.
func (db *DB) InTx(ctx context.Context, fn func(q *dbsqlc.Queries) error) error {
	retry := backoff.Backoff{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, beginner{db.Pool, db.limit},
			func(tx pgx.Tx) error { return fn(dbsqlc.New(session{tx, db.limit})) })
		if !conflict(err) || try == txTries {
			return translate(ctx, err)
		}
		if waitErr := retry.Wait(ctx); waitErr != nil {
			return fmt.Errorf("repeat transaction: %w", errors.Join(waitErr, err))
		}
	}
}

func conflict(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == codeSerialization || pg.Code == codeDeadlock)
}

// beginner begins transactions whose begin and end are bounded like statements.
type beginner struct {
	pool  *pgxpool.Pool
	limit time.Duration
}

func (b beginner) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, cancel := bounded(ctx, b.limit)
	defer cancel()
	tx, err := b.pool.Begin(ctx)
	return transaction{tx, b.limit}, err
}

type transaction struct {
	pgx.Tx
	limit time.Duration
}

// Commit does not begin if ctx has ended, but does not end with it: the end of a request whose change has just been
// stored, such as that of the actor's own rights, must not make it a failure.
func (t transaction) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := bounded(context.WithoutCancel(ctx), t.limit)
	defer cancel()
	return t.Tx.Commit(ctx)
}

func (t transaction) Rollback(ctx context.Context) error {
	ctx, cancel := bounded(ctx, t.limit)
	defer cancel()
	return t.Tx.Rollback(ctx)
}
