package certcache_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/certcache"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/certs/acme"
)

func ring(t *testing.T, n byte) *keyring.Ring {
	t.Helper()
	ring, err := keyring.Parse(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// stored returns ACME's rows.
func stored(t *testing.T, db *database.DB) map[string]string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), "SELECT key, value FROM settings WHERE starts_with(key, 'acme:')")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for rows.Next() {
		var key string
		var value []byte
		if err := rows.Scan(&key, &value); err != nil {
			t.Fatal(err)
		}
		all[key] = string(value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSealed: the data is encrypted. Data that was encrypted with a lost key, or for another name, counts as missing.
func TestSealed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c := certcache.Sealed{DB: db, Keys: ring(t, 1), Logger: slog.New(slog.DiscardHandler)}
	if _, err := c.Get(t.Context(), "a"); !errors.Is(err, acme.ErrCacheMiss) {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"first", "key"} {
		if err := c.Put(t.Context(), "a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), "a"); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
		if value, ok := stored(t, db)["acme:a"]; !ok || strings.Contains(value, text) {
			t.Errorf("%q is stored as %q, want it encrypted", text, value)
		}
	}
	if _, err := (certcache.Sealed{DB: db, Keys: ring(t, 2), Logger: c.Logger}).Get(t.Context(), "a"); !errors.Is(err, acme.ErrCacheMiss) {
		t.Errorf("with another key: got %v", err)
	}
	if _, err := db.Pool.Exec(t.Context(), "UPDATE settings SET key = 'acme:b' WHERE key = 'acme:a'"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "b"); !errors.Is(err, acme.ErrCacheMiss) {
		t.Errorf("another name's data: got %v", err)
	}
	if err := c.Delete(t.Context(), "b"); err != nil || len(stored(t, db)) != 0 {
		t.Errorf("got %v, %q", err, stored(t, db))
	}
}
