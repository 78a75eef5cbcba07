package database_test

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

// removed lists the tables and columns that migrations have removed. Everything else must survive every upgrade.
var removed = map[string]bool{"workspace_host_keys": true, "workspace_agents.ssh_host_key": true}

// TestUpgradeFromEverySchema migrates an empty database from schema to schema, stores after each step what a release
// with this schema stored, and checks that the next step keeps every value. So an upgrade from any schema to the newest
// keeps them too.
func TestUpgradeFromEverySchema(t *testing.T) {
	t.Parallel()
	url, files := dbtest.EmptyURL(t), fstest.MapFS{}
	var before map[string][]map[string]any
	for version, name := range schemas(t) {
		kept := t.Run(name, func(t *testing.T) {
			text, err := fs.ReadFile(database.Migrations(), name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = &fstest.MapFile{Data: text}
			if err := database.Migrate(t.Context(), url, files, quiet); err != nil {
				t.Fatal(err)
			}
			after := contents(t, url)
			survives(t, before, after)
			rows, err := os.ReadFile(fmt.Sprintf("testdata/rows/%04d.sql", version))
			if err == nil {
				_, err = connect(t, url).Exec(t.Context(), string(rows))
				after = contents(t, url)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // it does not exist if there is no new table
				t.Fatal(err)
			}
			for table, rows := range after {
				if len(rows) == 0 {
					t.Errorf("no row in %s: add one to testdata/rows", table)
				}
			}
			before = after
		})
		if !kept {
			return
		}
	}
	open(t, url)
}

// TestUpgradeAtOnce migrates from some schemas to the newest in one go, as a server of a new release does, and checks
// that every value is still there.
func TestUpgradeAtOnce(t *testing.T) {
	t.Parallel()
	for version, name := range schemas(t) {
		if version%20 != 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.EarlierURL(t, version, os.DirFS("testdata/rows"))
			before := contents(t, url)
			if err := database.Migrate(t.Context(), url, database.Migrations(), quiet); err != nil {
				t.Fatal(err)
			}
			survives(t, before, contents(t, url))
			open(t, url)
		})
	}
}

// schemas yields the versions and files of all migrations in their order.
func schemas(t *testing.T) iter.Seq2[int64, string] {
	t.Helper()
	names, err := fs.Glob(database.Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(int64, string) bool) {
		for _, name := range names {
			var version int64
			if _, err := fmt.Sscanf(name, "%d_", &version); err != nil {
				t.Fatal(err)
			}
			if !yield(version, name) {
				return
			}
		}
	}
}

// survives fails the test unless every value before is there after, but for what was removed.
func survives(t *testing.T, before, after map[string][]map[string]any) {
	t.Helper()
	for table, want := range before {
		if removed[table] && after[table] == nil {
			continue
		}
		for i := range want {
			if i >= len(after[table]) {
				t.Errorf("%s: %d rows are left of %d", table, len(after[table]), len(want))
				break
			}
			// New columns are no loss.
			got := maps.Clone(after[table][i])
			maps.DeleteFunc(got, func(column string, _ any) bool { _, old := want[i][column]; return !old })
			maps.DeleteFunc(want[i], func(column string, _ any) bool { _, kept := got[column]; return !kept && removed[table+"."+column] })
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Errorf("%s (-before +after):\n%s", table, diff)
			}
		}
	}
}

// contents returns the rows of all tables, sorted, as column: value.
func contents(t *testing.T, url string) map[string][]map[string]any {
	t.Helper()
	conn := connect(t, url)
	rows, err := conn.Query(t.Context(), "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'goose_db_version'")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]map[string]any{}
	for _, table := range tables {
		rows, err := conn.Query(t.Context(), "SELECT to_jsonb(t) FROM "+pgx.Identifier{table}.Sanitize()+" t")
		if err != nil {
			t.Fatal(err)
		}
		if all[table], err = pgx.CollectRows(rows, pgx.RowTo[map[string]any]); err != nil {
			t.Fatal(err)
		}
		key := func(row map[string]any) string {
			return fmt.Sprint(row["id"], row["key"], row["name"], row["user_id"], row["organization_id"])
		}
		slices.SortFunc(all[table], func(a, b map[string]any) int { return strings.Compare(key(a), key(b)) })
	}
	return all
}
