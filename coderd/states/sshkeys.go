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

// GitKeyPlace is where a user's private key for git is kept.
func GitKeyPlace(user uuid.UUID) string { return "git_ssh_keys " + user.String() }

// HostKeyPlace is where the private host key of a workspace's agent is kept.
func HostKeyPlace(workspace uuid.UUID, agent string) string {
	return "workspace_host_keys " + workspace.String() + " " + agent
}

// OpenSSHKey is a private SSH key in OpenSSH's PEM form that is stored at a place, sealed or, by an older release, plain. Its fault,
// Conflict, says what to do.
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
	done := 0
	for _, user := range users {
		if err := r.reseal(ctx, db, log, GitKeyPlace(user), func(q *dbsqlc.Queries) (string, []byte, error) {
			row, err := q.LockGitSSHKey(ctx, user)
			return row.PrivateKey, row.Sealed, err
		}, func(q *dbsqlc.Queries, sealed []byte) error {
			return q.SealGitSSHKey(ctx, dbsqlc.SealGitSSHKeyParams{UserID: user, Sealed: sealed})
		}); err != nil {
			return err
		}
		done++
	}
	hosts, err := db.ListHostKeysNotUnder(ctx, r.Header())
	if err != nil {
		return fmt.Errorf("list host keys to encrypt: %w", err)
	}
	for _, host := range hosts {
		if err := r.reseal(ctx, db, log, HostKeyPlace(host.WorkspaceID, host.AgentName), func(q *dbsqlc.Queries) (string, []byte, error) {
			row, err := q.LockHostKey(ctx, dbsqlc.LockHostKeyParams(host))
			return row.PrivateKey, row.Sealed, err
		}, func(q *dbsqlc.Queries, sealed []byte) error {
			return q.SealHostKey(ctx, dbsqlc.SealHostKeyParams{WorkspaceID: host.WorkspaceID, AgentName: host.AgentName, Sealed: sealed})
		}); err != nil {
			return err
		}
		done++
	}
	if done > 0 {
		log.Info("SSH keys encrypted with the first key", "keys", done)
	}
	return nil
}

// reseal encrypts one private key anew. One that cannot be read stays as it is.
func (r *Keyring) reseal(ctx context.Context, db *database.DB, log *slog.Logger, place string, read func(*dbsqlc.Queries) (string, []byte, error), write func(*dbsqlc.Queries, []byte) error) error {
	err := db.InTx(ctx, func(q *dbsqlc.Queries) error {
		plain, sealed, err := read(q)
		if err != nil {
			return err
		}
		key, err := r.OpenSSHKey(place, plain, sealed)
		if err != nil {
			return err
		}
		return write(q, r.SealSecret(place, []byte(key)))
	})
	switch {
	case database.IsNotFound(err): // deleted meanwhile
		return nil
	case errors.Is(err, ErrUnreadable):
		log.Error("SSH key not encrypted anew", "place", place, "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("encrypt %s: %w", place, err)
	}
	return nil
}
