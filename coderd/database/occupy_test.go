package database_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// holders returns the processes that hold the servers' lock.
func holders(t *testing.T, db *database.DB) (pids []int32) {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pid int32
		if err := rows.Scan(&pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// TestServersShareADatabase checks that servers run beside each other, but not beside one of an earlier version, which locks the database
// for itself: it keeps them out, and they keep it out.
func TestServersShareADatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url := db.Pool.Config().ConnString()
	log := slog.New(slog.DiscardHandler)
	first, err := database.Source{URL: url}.Occupy(t.Context(), log, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := database.Source{URL: url}.Occupy(t.Context(), log, 0)
	if err != nil {
		t.Fatalf("a second server: %v", err)
	}
	defer second.Close()

	earlier, err := db.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer earlier.Close(context.WithoutCancel(t.Context()))
	lock := func() (locked bool) {
		t.Helper()
		if err := earlier.QueryRow(t.Context(), "SELECT pg_try_advisory_lock($1)", int64(0x636f6465726d7376)).Scan(&locked); err != nil {
			t.Fatal(err)
		}
		return locked
	}
	if lock() {
		t.Fatal("a server of an earlier version runs beside others")
	}
	first.Close()
	second.Close()
	// PostgreSQL releases the locks when it notices that the connections have ended.
	testwait.Until(t, "the lock is free", func() error {
		if !lock() {
			return errors.New("it is held")
		}
		return nil
	})
	if _, err := (database.Source{URL: url}).Occupy(t.Context(), log, 0); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("beside a server of an earlier version: %v", err)
	}
	waited := make(chan error, 1)
	go func() { // an upgrade: it waits for the earlier server to end
		next, err := database.Source{URL: url}.Occupy(context.WithoutCancel(t.Context()), log, time.Minute)
		if err == nil {
			next.Close()
		}
		waited <- err
	}()
	earlier.Close(t.Context())
	if err := <-waited; err != nil {
		t.Errorf("a server that was started before the earlier one had ended: %v", err)
	}
}

// TestOccupancySurvivesPostgres checks that a server whose connection is cut reacquires its database, and ends if another
// server has it.
func TestOccupancySurvivesPostgres(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url := db.Pool.Config().ConnString()
	log := slog.New(slog.DiscardHandler)
	held, err := database.Source{URL: url}.Occupy(t.Context(), log, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	before := holders(t, db)
	if len(before) != 1 {
		t.Fatalf("%d locks, want 1", len(before))
	}
	cut := func(pid int32) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid); err != nil {
			t.Fatal(err)
		}
	}
	cut(before[0])
	testwait.Until(t, "the lock is taken again", func() error {
		if now := holders(t, db); len(now) != 1 || now[0] == before[0] {
			return fmt.Errorf("it was held by %d, and is by %d", before, now)
		}
		return nil
	})
	select {
	case err := <-held.Lost():
		t.Errorf("the server was told to end: %v", err)
	default:
	}
}

// TestServerThatLostItsDatabaseEnds checks that a server whose connection was cut ends if one that does not share the database has acquired
// the lock by then.
func TestServerThatLostItsDatabaseEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	held, err := database.Source{URL: db.Pool.Config().ConnString()}.Occupy(t.Context(), slog.New(slog.DiscardHandler), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	before := holders(t, db)
	other, err := db.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.WithoutCancel(t.Context()))
	locked := make(chan error, 1)
	go func() { // waits in the queue for the same lock
		_, err := other.Exec(context.WithoutCancel(t.Context()), `SELECT pg_advisory_lock((SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
			WHERE pid = $1 AND locktype = 'advisory'))`, before[0])
		locked <- err
	}()
	testwait.Until(t, "the other waits for the lock", func() error {
		var pid int32
		return db.Pool.QueryRow(t.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1`, other.PgConn().PID()).Scan(&pid)
	})
	if _, err := db.Pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", before[0]); err != nil {
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := <-held.Lost(); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("the first server was told %v", err)
	}
}
