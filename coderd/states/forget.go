package states

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/fault"
)

// Lost counts what is encrypted with a key that an operator has lost.
type Lost struct {
	States  int64 // of builds
	SSHKeys int64 // users' keys for git
	Secrets int64 // of users, for their workspaces
}

// CountUnder counts what is encrypted with the key of an id, in the form that Check prints. It returns a fault, Invalid, if
// id is not an id or if nothing is encrypted with its key.
func CountUnder(ctx context.Context, q *dbsqlc.Queries, id string) (key []byte, lost Lost, err error) {
	key, err = hex.DecodeString(id)
	if err != nil || len(key) != idSize {
		return nil, lost, fault.New(fault.Invalid, "%q is not the id of a key", id).WithDetail("The server names the ids of missing keys when it starts: 16 hexadecimal digits each.")
	}
	counts, err := countKeys(ctx, q)
	if err != nil {
		return nil, lost, err
	}
	lost = counts[keyID(key)]
	if lost == (Lost{}) {
		return nil, lost, fault.New(fault.Invalid, "Nothing in the database is encrypted with the key %s", id)
	}
	return key, lost, nil
}

// Forget lets servers without the key of an id start. The states and users' secrets under it stay as they are: builds that need the
// states fail, and workspaces do not get the secrets, until they are replaced, or until the key is found and given to the server again.
// Forget deletes SSH keys under it; they are created again when they are next needed.
func Forget(ctx context.Context, db *database.DB, id string) (lost Lost, err error) {
	err = db.InTx(ctx, func(q *dbsqlc.Queries) error {
		var key []byte
		if key, lost, err = CountUnder(ctx, q, id); err != nil {
			return err
		}
		if err := q.ForgetStateKey(ctx, key); err != nil {
			return fmt.Errorf("forget key: %w", err)
		}
		header := append(append([]byte{}, magic...), key...)
		if err := q.DeleteGitSSHKeysUnder(ctx, header); err != nil {
			return fmt.Errorf("delete keys for git: %w", err)
		}
		return nil
	})
	return lost, err
}

// KeysInUse returns the ids of the keys that encrypt something in the database, in order, without those that were forgotten.
func KeysInUse(ctx context.Context, q *dbsqlc.Queries) ([]string, error) {
	counts, err := countKeys(ctx, q)
	if err != nil {
		return nil, err
	}
	forgotten, err := q.ListForgottenStateKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list forgotten keys: %w", err)
	}
	for _, id := range forgotten {
		delete(counts, keyID(id))
	}
	ids := []string{}
	for id := range counts {
		ids = append(ids, id.String())
	}
	slices.Sort(ids)
	return ids, nil
}

// countKeys counts what is encrypted with each key.
func countKeys(ctx context.Context, q *dbsqlc.Queries) (map[keyID]Lost, error) {
	out := map[keyID]Lost{}
	builds, err := q.CountStateKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("count states by key: %w", err)
	}
	for _, c := range builds {
		if len(c.StateKey) == idSize { // otherwise not encrypted yet
			out[keyID(c.StateKey)] = Lost{States: c.States}
		}
	}
	ssh, err := q.CountSSHKeyKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("count SSH keys by key: %w", err)
	}
	for _, c := range ssh {
		if len(c.KeyID) == idSize {
			lost := out[keyID(c.KeyID)]
			lost.SSHKeys = c.Keys
			out[keyID(c.KeyID)] = lost
		}
	}
	secrets, err := q.CountUserSecretKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("count secrets by key: %w", err)
	}
	for _, c := range secrets {
		if len(c.KeyID) == idSize {
			lost := out[keyID(c.KeyID)]
			lost.Secrets = c.Secrets
			out[keyID(c.KeyID)] = lost
		}
	}
	return out, nil
}
