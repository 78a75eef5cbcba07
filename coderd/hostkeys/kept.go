package hostkeys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// kept is a secret that the deployment keeps in its settings, sealed.
type kept struct {
	setting keyring.SSHSetting
	name    string // in logs and errors
	valid   func(secret []byte) bool
}

// load returns the secret that the first server stored, among several that start at the same moment.
func (k kept) load(ctx context.Context, db *database.DB, ring *keyring.Ring, log *slog.Logger) ([]byte, error) {
	sealed := ring.SealSecret(k.setting.Place(), fresh())
	first := dbsqlc.InsertSettingOnceParams{Key: string(k.setting), Value: sealed}
	if err := db.InsertSettingOnce(ctx, first); err != nil {
		return nil, fmt.Errorf("store %s: %w", k.name, err)
	}
	stored, secret, err := k.read(ctx, db.Queries, ring)
	if err != nil || secret != nil {
		return secret, err
	}
	log.WarnContext(ctx, "cannot decrypt SSH keys, replacing them", "what", k.name)
	second := dbsqlc.ReplaceSettingParams{Key: string(k.setting), After: sealed, Before: stored}
	if _, err := db.ReplaceSetting(ctx, second); err != nil {
		return nil, fmt.Errorf("replace %s: %w", k.name, err)
	}
	if _, secret, err = k.read(ctx, db.Queries, ring); err != nil || secret != nil {
		return secret, err
	}
	return nil, fault.New(fault.Conflict,
		"Another server replaced the %s at the same time, with a key that this server does not have", k.name).
		WithDetail("Give all servers the same keys with --state-encryption-key-file, and restart them.")
}

// read returns the secret as it is stored, and decrypted: nil if it cannot be.
func (k kept) read(ctx context.Context, q *dbsqlc.Queries, ring *keyring.Ring) (stored, secret []byte, err error) {
	if stored, err = q.GetSetting(ctx, string(k.setting)); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", k.name, err)
	}
	secret, err = ring.OpenSecret(k.setting.Place(), stored)
	if errors.Is(err, keyring.ErrUnreadable) || err == nil && !k.valid(secret) {
		return stored, nil, nil
	}
	return stored, secret, err
}

// fresh returns a new seed.
func fresh() []byte {
	seed := make([]byte, seedSize)
	rand.Read(seed) // never fails
	return seed
}
