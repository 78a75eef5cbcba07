package database

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is a pool or a transaction on which queries run. It translates their errors.
type session struct{ on executor }

type executor interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

func (s session) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := s.on.Exec(ctx, sql, args...)
	return tag, translate(ctx, err)
}

func (s session) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r, err := s.on.Query(ctx, sql, args...)
	return rows{r, ctx}, translate(ctx, err)
}

func (s session) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return row{s.on.QueryRow(ctx, sql, args...), ctx}
}

func (s session) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	n, err := s.on.CopyFrom(ctx, table, columns, source)
	return n, translate(ctx, err)
}

func (s session) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return batch{s.on.SendBatch(ctx, b), ctx}
}

// The results keep the context of their query, which bounds them, to distinguish a lost database from a caller that canceled.
type (
	rows struct {
		pgx.Rows
		ctx context.Context
	}
	row struct {
		pgx.Row
		ctx context.Context
	}
	batch struct {
		pgx.BatchResults
		ctx context.Context
	}
)

func (r rows) Err() error             { return translate(r.ctx, r.Rows.Err()) }
func (r rows) Scan(dest ...any) error { return translate(r.ctx, r.Rows.Scan(dest...)) }
func (r row) Scan(dest ...any) error  { return translate(r.ctx, r.Row.Scan(dest...)) }

func (b batch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, translate(b.ctx, err)
}

func (b batch) Query() (pgx.Rows, error) {
	r, err := b.BatchResults.Query()
	return rows{r, b.ctx}, translate(b.ctx, err)
}

func (b batch) QueryRow() pgx.Row { return row{b.BatchResults.QueryRow(), b.ctx} }
func (b batch) Close() error      { return translate(b.ctx, b.BatchResults.Close()) }
