package states

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/fault"
)

// GitKeyPlace returns where a user's private key for git is kept.
func GitKeyPlace(user uuid.UUID) string { return "git_ssh_keys " + user.String() }

// OpenSSHKey returns a private SSH key in OpenSSH's PEM form that is stored at a place, either sealed or, by an older
// release, plain. Its fault, Conflict, tells the user what to do.
func (r *Keyring) OpenSSHKey(place, plain string, sealed []byte) (string, error) {
	if len(sealed) == 0 {
		return plain, nil
	}
	key, err := r.OpenSecret(place, sealed)
	if err != nil {
		return "", fault.New(fault.Conflict, "An SSH key cannot be read with the server's encryption keys: %w", err).
			WithDetail("Give the server the missing key with --state-encryption-key-file. Without it, a user's key for git is replaced by: coder publickey --reset")
	}
	return string(key), nil
}

// ReencryptSSHKeys encrypts every private SSH key that is not under the first key, as Reencrypt does with states.
func (r *Keyring) ReencryptSSHKeys(ctx context.Context, db *database.DB, log *slog.Logger) error {
	users, err := db.ListGitSSHKeysNotUnder(ctx, r.Header())
	if err != nil {
		return fmt.Errorf("list keys for git to encrypt: %w", err)
	}
	for _, user := range users {
		if err := r.reseal(ctx, db, log, user); err != nil {
			return err
		}
	}
	if len(users) > 0 {
		log.Info("SSH keys encrypted with the first key", "keys", len(users))
	}
	return nil
}

// reseal encrypts a user's private key for git again. A key that cannot be read stays as it is.
func (r *Keyring) reseal(ctx context.Context, db *database.DB, log *slog.Logger, user uuid.UUID) error {
	place := GitKeyPlace(user)
	err := db.InTx(ctx, func(q *dbsqlc.Queries) error {
		row, err := q.LockGitSSHKey(ctx, user)
		if err != nil {
			return err
		}
		key, err := r.OpenSSHKey(place, row.PrivateKey, row.Sealed)
		if err != nil {
			return err
		}
		return q.SealGitSSHKey(ctx, dbsqlc.SealGitSSHKeyParams{UserID: user, Sealed: r.SealSecret(place, []byte(key))})
	})
	switch {
	case database.IsNotFound(err): // deleted meanwhile
		return nil
	case errors.Is(err, ErrUnreadable):
		log.Error("cannot re-encrypt SSH key", "place", place, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("encrypt %s: %w", place, err)
	}
	return nil
}
