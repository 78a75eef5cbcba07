package dbtest

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/codermesh/codermesh/v2/coderd/database"
)

// EarlierURL returns the URL of a database that went through all schemas up to a version, and has what a release with
// each of them stored: the file <version>.sql in rows, which is coderd/database/testdata/rows.
func EarlierURL(t testing.TB, version int64, rows fs.FS) string {
	t.Helper()
	url := EmptyURL(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, database.Migrations(),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range provider.ListSources() {
		if source.Version > version {
			break
		}
		if _, err := provider.UpTo(t.Context(), source.Version); err != nil {
			t.Fatal(err)
		}
		text, err := fs.ReadFile(rows, fmt.Sprintf("%04d.sql", source.Version))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no new table
		}
		if err == nil {
			_, err = db.ExecContext(t.Context(), string(text))
		}
		if err != nil {
			t.Fatalf("rows of schema %d: %v", source.Version, err)
		}
	}
	return url
}
