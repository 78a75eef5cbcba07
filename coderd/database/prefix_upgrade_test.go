package database_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
)

// removed lists the tables and columns that migrations have removed. Everything else must survive every upgrade.
var removed = map[string]bool{"workspace_host_keys": true, "workspace_agents.ssh_host_key": true}

// TestUpgradeFromEverySchema migrates from each schema that there has been to the newest, and checks that every value is still there.
func TestUpgradeFromEverySchema(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(database.Migrations(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var version int64
			if _, err := fmt.Sscanf(name, "%d_", &version); err != nil {
				t.Fatal(err)
			}
			url := dbtest.EarlierURL(t, version, os.DirFS("testdata/rows"))
			before := contents(t, url)
			for table, rows := range before {
				if len(rows) == 0 {
					t.Errorf("no row in %s: add one to testdata/rows", table)
				}
			}
			if err := database.Migrate(t.Context(), url, database.Migrations(), quiet); err != nil {
				t.Fatal(err)
			}
			after := contents(t, url)
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
			open(t, url)
		})
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
