package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is a pool or a transaction on which queries run. It translates their errors, and bounds the time that each of
// them waits for an answer.
type session struct {
	on    executor
	limit time.Duration // 0: none
}

// bounded returns ctx with a limit.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

type executor interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

func (s session) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	limited, cancel := bounded(ctx, s.limit)
	defer cancel()
	tag, err := s.on.Exec(limited, sql, args...)
	return tag, translate(ctx, err)
}

func (s session) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	limited, cancel := bounded(ctx, s.limit)
	r, err := s.on.Query(limited, sql, args...)
	if err != nil {
		cancel()
	}
	return rows{r, ctx, cancel}, translate(ctx, err)
}

func (s session) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	limited, cancel := bounded(ctx, s.limit)
	return row{s.on.QueryRow(limited, sql, args...), ctx, cancel}
}

func (s session) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource,
) (int64, error) {
	limited, cancel := bounded(ctx, s.limit)
	defer cancel()
	n, err := s.on.CopyFrom(limited, table, columns, source)
	return n, translate(ctx, err)
}

func (s session) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	limited, cancel := bounded(ctx, s.limit)
	return batch{s.on.SendBatch(limited, b), ctx, cancel}
}

// The results keep the context of their query, to distinguish a lost database from a caller that canceled, and what
// releases the query's limit once they are closed.
type (
	rows struct {
		pgx.Rows
		ctx     context.Context
		release context.CancelFunc
	}
	row struct {
		pgx.Row
		ctx     context.Context
		release context.CancelFunc
	}
	batch struct {
		pgx.BatchResults
		ctx     context.Context
		release context.CancelFunc
	}
)

func (r rows) Err() error             { return translate(r.ctx, r.Rows.Err()) }
func (r rows) Scan(dest ...any) error { return translate(r.ctx, r.Rows.Scan(dest...)) }

func (r rows) Close() {
	r.Rows.Close()
	r.release()
}

func (r row) Scan(dest ...any) error {
	defer r.release()
	return translate(r.ctx, r.Row.Scan(dest...))
}

func (b batch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	return tag, translate(b.ctx, err)
}

func (b batch) Query() (pgx.Rows, error) {
	r, err := b.BatchResults.Query()
	return rows{r, b.ctx, func() {}}, translate(b.ctx, err)
}

func (b batch) QueryRow() pgx.Row { return row{b.BatchResults.QueryRow(), b.ctx, func() {}} }

func (b batch) Close() error {
	defer b.release()
	return translate(b.ctx, b.BatchResults.Close())
}
