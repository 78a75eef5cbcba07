// Package certcache keeps what the servers of a deployment get from a certificate authority in their database. Package
// acme gets it.
package certcache

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/certs/acme"
)

// Sealed keeps ACME's data in the database, for all servers of the deployment. The data is encrypted, since it contains
// keys.
type Sealed struct {
	DB     *database.DB
	Keys   *keyring.Ring
	Logger *slog.Logger
}

// Get implements acme.Cache. Data that cannot be decrypted counts as missing: a lost key costs new certificates only.
func (c Sealed) Get(ctx context.Context, name string) ([]byte, error) {
	stored, err := c.DB.GetACMEData(ctx, name)
	if database.IsNotFound(err) {
		return nil, acme.ErrCacheMiss
	}
	if err != nil {
		return nil, fmt.Errorf("read ACME data: %w", err)
	}
	value, err := c.Keys.OpenSecret(keyring.ACMEPlace(name), stored)
	if err != nil {
		c.Logger.Warn("cannot decrypt ACME data, replacing it", "err", err)
		return nil, acme.ErrCacheMiss
	}
	return value, nil
}

// Put implements acme.Cache.
func (c Sealed) Put(ctx context.Context, name string, value []byte) error {
	if err := c.DB.PutACMEData(ctx, dbsqlc.PutACMEDataParams{
		Name: name, Value: c.Keys.SealSecret(keyring.ACMEPlace(name), value),
	}); err != nil {
		return fmt.Errorf("store ACME data: %w", err)
	}
	return nil
}

// Delete implements acme.Cache.
func (c Sealed) Delete(ctx context.Context, name string) error {
	if err := c.DB.DeleteACMEData(ctx, name); err != nil {
		return fmt.Errorf("delete ACME data: %w", err)
	}
	return nil
}
