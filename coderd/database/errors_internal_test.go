package database

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestTranslate checks what users are told about errors of PostgreSQL.
func TestTranslate(t *testing.T) {
	const full = "The database's disk is full."
	for _, tc := range []struct {
		name string
		err  error
		want string // "" if the error stays as it is
	}{
		{"disk full", &pgconn.PgError{Code: codeDiskFull, Message: "could not extend file"}, full},
		{"disk full at a commit", &pgconn.PgError{Code: "58030", Message: `could not write to file "pg_wal/xlogtemp.7": No space left on device`}, full},
		{"disk full for a new connection", &pgconn.PgError{Code: codeInternal, Message: "could not write init file"}, full},
		{"wrapped", fmt.Errorf("read users: %w", &pgconn.PgError{Code: codeDiskFull}), full},
		{"too slow", &pgconn.PgError{Code: codeQueryCanceled}, "The database took too long."},
		{"standby", &pgconn.PgError{Code: codeReadOnly}, "The database is read-only."},
		{"restarting", &pgconn.PgError{Code: "57P01"}, "The database cannot accept connections now."},
		{"defect", &pgconn.PgError{Code: codeInternal, Message: "cache lookup failed"}, ""},
		{"not PostgreSQL's", errors.New("no such file"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := translate(t.Context(), tc.err)
			if tc.want == "" {
				if !errors.Is(got, tc.err) || fault.As(got) != nil {
					t.Errorf("got %v", got)
				}
				return
			}
			if f := fault.As(got); f == nil || f.Message != tc.want || f.Code != fault.Unavailable {
				t.Errorf("got %#v, want %q", got, tc.want)
			}
		})
	}
}
