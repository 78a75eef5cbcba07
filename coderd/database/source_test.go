package database_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func openSource(t *testing.T, s database.Source) *database.DB {
	t.Helper()
	db, err := s.Open(t.Context(), quiet)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// TestPoolSizes checks that the options size the pool, then the URL; that as many transactions run simultaneously as there may be
// connections; and that no more unused connections stay than the option allows.
func TestPoolSizes(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	two := 2
	for name, row := range map[string]struct {
		source database.Source
		open   int32
	}{
		"option":         {database.Source{URL: url, MaxOpen: 5, MaxIdle: &two}, 5},
		"option and URL": {database.Source{URL: url + "&pool_max_conns=7&pool_min_conns=7", MaxOpen: 6}, 6},
		"URL":            {database.Source{URL: url + "&pool_max_conns=7"}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			hold, err := row.source.Occupy(t.Context(), quiet, 0)
			if err != nil {
				t.Fatalf("occupy: %v", err)
			}
			defer hold.Close()
			db := openSource(t, row.source)
			if got := db.Pool.Stat().MaxConns(); got != row.open {
				t.Fatalf("at most %d connections, want %d", got, row.open)
			}
			var inside, left sync.WaitGroup
			inside.Add(int(row.open))
			for range row.open {
				left.Go(func() {
					if err := db.InTx(t.Context(), func(*dbsqlc.Queries) error { inside.Done(); inside.Wait(); return nil }); err != nil {
						t.Error(err)
					}
				})
			}
			left.Wait()
			if row.source.MaxIdle == nil {
				return
			}
			// One after the other, so that the pool has seen each return.
			testwait.Until(t, "two connections stay", func() error {
				_, err := db.GetDefaultOrganization(t.Context())
				n := db.Pool.Stat().TotalConns()
				return testwait.Unless(err == nil && n <= 2, "there are %d (%v)", n, err)
			})
		})
	}
	if got := openSource(t, database.Source{URL: url}).Pool.Stat().MaxConns(); got < 16 || got > 30 {
		t.Errorf("by default at most %d connections", got)
	}
}

// TestSessionLimits checks the limits of a session in the pool, and that a connection outside it, as migrations and listeners have, has none.
func TestSessionLimits(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for name, want := range map[string]string{"statement_timeout": "30s", "lock_timeout": "15s", "idle_in_transaction_session_timeout": "1min"} {
		var got string
		if err := db.Pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	conn, err := db.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, name := range []string{"statement_timeout", "lock_timeout"} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil || got != "0" {
			t.Errorf("outside the pool, %s: %q, %v, want none", name, got, err)
		}
	}
}

// TestPasswords checks that every new connection asks for its own password, and that a missing one is reported as it is.
func TestPasswords(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var missing atomic.Bool
	source := database.Source{URL: dbtest.EmptyURL(t), Password: func(context.Context) (string, error) {
		if asked.Add(1); missing.Load() {
			return "", fault.New(fault.Unavailable, "There is no token.")
		}
		return "x", nil
	}}
	hold, err := source.Occupy(t.Context(), quiet, 0)
	if err != nil {
		t.Fatal(err)
	}
	hold.Close()
	if n := asked.Load(); n != 1 {
		t.Errorf("the lock asked %d times", n)
	}
	db := openSource(t, source) // with migrations
	before := asked.Load()
	conn, err := db.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	db.Pool.Reset()
	if _, err := db.GetDefaultOrganization(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load() - before; n != 2 {
		t.Errorf("a listener and a new connection of the pool asked %d times, want 2", n)
	}
	missing.Store(true)
	db.Pool.Reset()
	if _, err := db.GetDefaultOrganization(t.Context()); fault.CodeOf(err) != fault.Unavailable || fault.As(err).Message != "There is no token." {
		t.Errorf("without a password: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := source.Open(ctx, quiet); err == nil || fault.As(err) == nil || fault.As(err).Message != "There is no token." {
		t.Errorf("open without a password: %v", err)
	}
}

// TestBadWay checks what a way to the database that is held, cut or lost does: calls end with Unavailable, also transactions that were open, and
// the next ones work as soon as the way is good.
func TestBadWay(t *testing.T) {
	t.Parallel()
	proxy := dbtest.NewProxy(t, dbtest.URL(t))
	db := openSource(t, database.Source{URL: proxy.URL + "&statement_timeout=200ms", MaxOpen: 3})
	works := func(when string) {
		t.Helper()
		testwait.Until(t, when+": a call works", func() error { _, err := db.GetDefaultOrganization(t.Context()); return err })
		if err := db.InTx(t.Context(), func(q *dbsqlc.Queries) error { _, err := q.GetDefaultOrganization(t.Context()); return err }); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	works("at first")
	read := func(q *dbsqlc.Queries) error { _, err := q.GetDefaultOrganization(t.Context()); return err }
	for name, worsen := range map[string]func(){"held": proxy.Hold, "cut": proxy.Cut, "dropped": proxy.Drop} {
		err := db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			if err := read(q); err != nil {
				return err
			}
			worsen()
			return read(q)
		})
		if fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: a transaction ended with %v", name, err)
		}
		// The commit of a transaction is not answered either.
		proxy.Release()
		works(name + " and good again")
		err = db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			defer worsen()
			return read(q)
		})
		if fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: a commit ended with %v", name, err)
		}
		if name != "dropped" {
			for range 5 { // more often than there are connections
				if err := read(db.Queries); fault.CodeOf(err) != fault.Unavailable {
					t.Errorf("%s: a call ended with %v", name, err)
				}
			}
			rows, err := db.ListUsersWithExpiredKeys(t.Context(), dbsqlc.ListUsersWithExpiredKeysParams{})
			if fault.CodeOf(err) != fault.Unavailable {
				t.Errorf("%s: a list ended with %v, %v", name, rows, err)
			}
		}
		proxy.Release()
		works(name + " and good again")
	}
	// A caller that gives up is not an outage.
	proxy.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := db.GetDefaultOrganization(ctx); !errors.Is(err, context.DeadlineExceeded) || fault.As(err) != nil {
		t.Errorf("given up: got %v", err)
	}
	proxy.Release()
	works("in the end")
}

// TestBusyPool checks that a call that finds no free connection ends with Unavailable instead of waiting forever, and that it works when there
// is one.
func TestBusyPool(t *testing.T) {
	t.Parallel()
	db := openSource(t, database.Source{URL: dbtest.URL(t) + "&statement_timeout=200ms", MaxOpen: 1})
	err := db.InTx(t.Context(), func(*dbsqlc.Queries) error {
		_, err := db.GetDefaultOrganization(t.Context()) // not in the transaction: it needs a second connection
		return err
	})
	if fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("without a connection: %v", err)
	}
	if _, err := db.GetDefaultOrganization(t.Context()); err != nil {
		t.Error(err)
	}
}
