package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// countStatements makes PostgreSQL count what each statement costs. It needs the extension pg_stat_statements, and takes effect when
// PostgreSQL starts again.
func (d *deployment) countStatements(ctx context.Context) error {
	_, err := d.db.Pool.Exec(ctx, `ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'`)
	return err
}

// showStatements prints the statements that cost most since the last call.
func (d *deployment) showStatements(ctx context.Context) error {
	rows, err := d.db.Pool.Query(ctx, `SELECT calls, total_exec_time, total_exec_time / calls, rows, query FROM pg_stat_statements
		WHERE query !~ 'pg_stat' ORDER BY total_exec_time DESC LIMIT 25`)
	if err != nil {
		return err
	}
	defer rows.Close()
	fmt.Fprintln(os.Stderr, "    calls   total ms    mean ms       rows  statement")
	for rows.Next() {
		var calls, affected int64
		var total, mean float64
		var query string
		if err := rows.Scan(&calls, &total, &mean, &affected, &query); err != nil {
			return err
		}
		text := strings.Join(strings.Fields(query), " ")
		fmt.Fprintf(os.Stderr, "%9d %10.0f %10.2f %10d  %s\n", calls, total, mean, affected, text[:min(len(text), 140)])
	}
	if err := rows.Err(); err != nil {
		return err
	}
	_, err = d.db.Pool.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	return err
}
