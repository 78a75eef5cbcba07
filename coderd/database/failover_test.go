package database_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestFailover checks that a database with two hosts uses the primary, reports its end as unavailable, and goes on with the standby as soon as it
// is promoted: everything that was replicated is there, the schema is complete, and the server keeps its place in the database.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary, standby := dbtest.NewPair(t)
	source := database.Source{URL: dbtest.PairURL(standby, primary), MaxOpen: 4} // the order does not matter
	hold, err := source.Occupy(t.Context(), quiet, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	db := openSource(t, source)
	put := func(key string) error {
		return db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			return q.InsertSettingOnce(t.Context(), dbsqlc.InsertSettingOnceParams{Key: key, Value: []byte("v")})
		})
	}
	for i := range 20 {
		if err := put(fmt.Sprint("before ", i)); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "the standby has everything", func() error {
		return standby.Try(t.Context(), "SELECT 1 / (count(*) / 20) FROM settings WHERE key LIKE 'before %'")
	})

	primary.Stop()
	for range 10 { // more often than there are connections
		if err := put("between"); fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("without a primary: %v", err)
		}
	}
	standby.Promote(t)
	promoted := time.Now()
	testwait.Until(t, "writes work", func() error {
		err := put("after")
		if err != nil && fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("after the promotion: %v", err)
		}
		return err
	})
	t.Logf("writes worked %s after the promotion", time.Since(promoted).Round(10*time.Millisecond))
	for i := range 20 {
		if _, err := db.GetSetting(t.Context(), fmt.Sprint("before ", i)); err != nil {
			t.Errorf("setting %d: %v", i, err)
		}
	}
	if _, err := db.GetSetting(t.Context(), "between"); !database.IsNotFound(err) {
		t.Errorf("a write that failed: %v", err)
	}
	testwait.Until(t, "the server holds its place at the new primary", func() error { return testwait.Len(holders(t, db), 1) })
	again := openSource(t, source) // with nothing to migrate
	if _, err := again.GetDefaultOrganization(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMigrationIsCut checks that a database that goes away while it is migrated is complete after the next start.
func TestMigrationIsCut(t *testing.T) {
	t.Parallel()
	primary, standby := dbtest.NewPair(t)
	source := database.Source{URL: dbtest.PairURL(primary, standby), MaxOpen: 4}
	done := make(chan error, 1)
	go func() {
		db, err := source.Open(t.Context(), quiet)
		if err == nil {
			db.Close()
		}
		done <- err
	}()
	testwait.Until(t, "the migration is under way", func() error {
		return standby.Try(t.Context(), "SELECT 1 / (SELECT count(*) FROM goose_db_version WHERE version_id > 1)")
	})
	primary.Stop()
	if err := <-done; err == nil {
		t.Log("the migration was faster than the failure")
	}
	standby.Promote(t)
	db := openSource(t, source)
	if _, err := db.GetDefaultOrganization(t.Context()); err != nil {
		t.Error(err)
	}
	var twice int
	if err := db.Pool.QueryRow(t.Context(), "SELECT count(*) - count(DISTINCT version_id) FROM goose_db_version").Scan(&twice); err != nil || twice != 0 {
		t.Errorf("%d migrations are recorded twice, %v", twice, err)
	}
}
