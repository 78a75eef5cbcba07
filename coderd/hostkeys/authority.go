package hostkeys

import (
	"context"
	"fmt"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Authority is a certificate authority of the deployment. What it keeps is the seed of the key that signs, and behind
// it that of the one before: each is random, so that one that became known tells nothing about its successor. It reads
// them for each question, because another server may have rotated them. Safe for concurrent use.
type Authority struct {
	kept kept
	db   *database.DB
	ring *keyring.Ring
}

// Pair are the keys of an authority that count.
type Pair struct {
	Current  ssh.Signer // which signs
	Previous ssh.Signer // nil before the first rotation
}

func newAuthority(setting keyring.SSHSetting, name string, db *database.DB, ring *keyring.Ring) *Authority {
	return &Authority{kept{setting, name, func(secret []byte) bool {
		return len(secret) == seedSize || len(secret) == 2*seedSize
	}}, db, ring}
}

// Keys returns the authority's keys, using one query.
func (a *Authority) Keys(ctx context.Context) (Pair, error) {
	secret, err := a.read(ctx, a.db.Queries)
	if err != nil {
		return Pair{}, err
	}
	return pairOf(secret)
}

// Rotate makes a new key, which signs from then on. The present one becomes the previous one, whose predecessor is
// gone. It belongs to the caller's transaction.
func (a *Authority) Rotate(ctx context.Context, q *dbsqlc.Queries) (Pair, error) {
	setting := string(a.kept.setting)
	if err := q.LockSetting(ctx, setting); err != nil {
		return Pair{}, fmt.Errorf("lock %s: %w", a.kept.name, err)
	}
	secret, err := a.read(ctx, q)
	if err != nil {
		return Pair{}, err
	}
	secret = append(fresh(), secret[:seedSize]...)
	sealed := a.ring.SealSecret(a.kept.setting.Place(), secret)
	if err := q.UpdateSetting(ctx, dbsqlc.UpdateSettingParams{Key: setting, Value: sealed}); err != nil {
		return Pair{}, fmt.Errorf("store %s: %w", a.kept.name, err)
	}
	return pairOf(secret)
}

// read is kept.read for a secret that must be readable.
func (a *Authority) read(ctx context.Context, q *dbsqlc.Queries) (secret []byte, err error) {
	_, secret, err = a.kept.read(ctx, q, a.ring)
	if err == nil && secret == nil {
		err = fault.New(fault.Unavailable, "This server cannot decrypt the %s.", a.kept.name).
			WithDetail("Give all servers the same keys with --state-encryption-key-file, and restart them.")
	}
	return secret, err
}

func pairOf(secret []byte) (p Pair, err error) {
	if p.Current, err = signer(secret[:seedSize]); err != nil || len(secret) == seedSize {
		return p, err
	}
	p.Previous, err = signer(secret[seedSize:])
	return p, err
}
