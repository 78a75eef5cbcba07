package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// countStatements makes PostgreSQL count what each statement costs. It needs the extension pg_stat_statements, and
// starts PostgreSQL again.
func (d *deployment) countStatements(ctx context.Context) error {
	if _, err := d.db.Pool.Exec(ctx, `ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'`); err != nil {
		return err
	}
	if err := d.closeDatabase(); err != nil {
		return err
	}
	if err := d.openDatabase(ctx); err != nil {
		return err
	}
	for _, sql := range []string{`CREATE EXTENSION pg_stat_statements`, `ALTER SYSTEM SET pg_stat_statements.track_planning = on`, `SELECT pg_reload_conf()`} {
		if _, err := d.db.Pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// showStatements prints the statements that cost most since the last call.
func (d *deployment) showStatements(ctx context.Context) error {
	rows, err := d.db.Pool.Query(ctx, `SELECT calls, total_exec_time + total_plan_time, total_exec_time / calls, total_plan_time / calls, rows, query FROM pg_stat_statements
		WHERE query !~ 'pg_stat' AND calls > 0 ORDER BY total_exec_time + total_plan_time DESC LIMIT 40`)
	if err != nil {
		return err
	}
	defer rows.Close()
	fmt.Fprintln(os.Stderr, "    calls   total ms     run ms    plan ms       rows  statement")
	for rows.Next() {
		var calls, affected int64
		var total, run, plan float64
		var query string
		if err := rows.Scan(&calls, &total, &run, &plan, &affected, &query); err != nil {
			return err
		}
		text := strings.Join(strings.Fields(query), " ")
		fmt.Fprintf(os.Stderr, "%9d %10.0f %10.3f %10.3f %10d  %s\n", calls, total, run, plan, affected,
			text[:min(len(text), 140)])
	}
	if err := rows.Err(); err != nil {
		return err
	}
	_, err = d.db.Pool.Exec(ctx, `SELECT pg_stat_statements_reset()`)
	return err
}
