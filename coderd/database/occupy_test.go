package database_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/internal/fault"
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

// TestOneServerPerDatabase checks that a second server is refused with the first one's name, and accepted once the first one
// has ended.
func TestOneServerPerDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url := db.Pool.Config().ConnString()
	log := slog.New(slog.DiscardHandler)
	first, err := database.Occupy(t.Context(), url, log, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := database.Occupy(t.Context(), url, log, 0); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "codermesh server ") {
		t.Fatalf("a second server: %v", err)
	}
	waited := make(chan error, 1)
	go func() { // a restart: it waits for the first server to end
		next, err := database.Occupy(context.WithoutCancel(t.Context()), url, log, time.Minute)
		if err == nil {
			next.Close()
		}
		waited <- err
	}()
	first.Close()
	if err := <-waited; err != nil {
		t.Errorf("a server that was started before the first had ended: %v", err)
	}
	// PostgreSQL releases the lock when it notices that the connection has ended.
	for deadline := time.Now().Add(time.Minute); len(holders(t, db)) != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lock is left")
		}
	}
}

// TestOccupancySurvivesPostgres checks that a server whose connection is cut reacquires its database, and ends if another
// server has it.
func TestOccupancySurvivesPostgres(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url := db.Pool.Config().ConnString()
	log := slog.New(slog.DiscardHandler)
	held, err := database.Occupy(t.Context(), url, log, 0)
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
	deadline := time.Now().Add(time.Minute)
	for {
		if now := holders(t, db); len(now) == 1 && now[0] != before[0] {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the lock was not taken again")
		}
		time.Sleep(5 * time.Millisecond)
	}
	select {
	case err := <-held.Lost():
		t.Errorf("the server was told to end: %v", err)
	default:
	}
}

// TestServerThatLostItsDatabaseEnds checks that a server whose connection was cut ends if another has acquired the lock by
// then.
func TestServerThatLostItsDatabaseEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	held, err := database.Occupy(t.Context(), db.Pool.Config().ConnString(), slog.New(slog.DiscardHandler), 0)
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
	for waiting := false; !waiting; time.Sleep(5 * time.Millisecond) {
		if err := db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1)`, other.PgConn().PID()).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
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
