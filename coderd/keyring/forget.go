package keyring

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// endReason is what holders of ended sessions read.
const endReason = "an operator gave up the key that protected your sign-in. Sign in again."

// signInPrefix begins the ids of the providers that users sign in with (extauth.SignInPrefix).
const signInPrefix = "sign-in:"

// Loss is what is lost with some keys. Its lists are sorted.
type Loss struct {
	Values     map[Kind]int64
	SignIns    []string   // users who have to sign in again
	Logins     []Property // external logins that users have to link again, by provider
	Secrets    []Property // users' secrets whose values they have to set again
	SSHKeys    []string   // users who get a new key for git, and have to register it
	Workspaces []Property // workspaces whose latest state is lost
}

// Property is what a user owns.
type Property struct{ Owner, Name string }

func (p Property) String() string { return p.Owner + "/" + p.Name }

// FindLoss returns what is lost with the keys of some ids, in the form that Check prints. It returns a fault, Invalid,
// for an id with which nothing is encrypted, and for one whose key the ring has. The ring may be nil: then there is no
// key.
func FindLoss(ctx context.Context, q *dbsqlc.Queries, ring *Ring, ids []string) (Loss, error) {
	loss := Loss{Values: map[Kind]int64{}}
	keys, err := parseIDs(ids)
	if err != nil {
		return loss, err
	}
	all, err := Usages(ctx, q)
	if err != nil {
		return loss, err
	}
	for _, key := range keys {
		id := key.String()
		if ring != nil && ring.Has(id) {
			return loss, fault.New(fault.Invalid, "The key %s is not lost: it is among the server's keys", id).
				WithDetail("Nothing was changed.")
		}
		i := slices.IndexFunc(all, func(u Usage) bool { return u.Key == id })
		if i < 0 {
			return loss, fault.New(fault.Invalid, "Nothing in the database is encrypted with the key %s", id).
				WithDetail("List the keys in use with: coder server keys list")
		}
		for kind, n := range all[i].Values {
			loss.Values[kind] += n
		}
	}
	rows, err := q.ListSealedUnder(ctx, headers(keys))
	if err != nil {
		return loss, fmt.Errorf("list lost values: %w", err)
	}
	for _, row := range rows {
		switch owned := (Property{row.Owner, row.Name}); Kind(row.Kind) {
		case ExternalLogins:
			if strings.HasPrefix(row.Name, signInPrefix) {
				loss.SignIns = append(loss.SignIns, row.Owner)
			} else {
				loss.Logins = append(loss.Logins, owned)
			}
		case UserSecrets:
			loss.Secrets = append(loss.Secrets, owned)
		case SSHKeys:
			loss.SSHKeys = append(loss.SSHKeys, row.Owner)
		case WorkspaceStates:
			loss.Workspaces = append(loss.Workspaces, owned)
		}
	}
	return loss, nil
}

// Forget lets servers start without the keys of some ids, and deletes what is encrypted with them and can be made
// again: SSH keys, external logins, sign-ins (whose sessions end), the SSH host seed and certificate authorities, the
// keys that sign ID tokens, ACME's data and pieces of states. States and the values of users' secrets stay: builds that
// need such a state fail instead of creating its resources a second time, users see which secrets to set again, and
// both are readable if the key is found. No server may run meanwhile. Its faults are FindLoss's, and then nothing is
// changed.
func Forget(ctx context.Context, db *database.DB, ring *Ring, ids []string) (loss Loss, err error) {
	err = db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if loss, err = FindLoss(ctx, q, ring, ids); err != nil {
			return err
		}
		keys, err := parseIDs(ids)
		if err != nil {
			return err
		}
		lost, under := make([][]byte, len(keys)), headers(keys)
		for i, key := range keys {
			lost[i] = key[:]
		}
		if err := q.ForgetStateKeys(ctx, lost); err != nil {
			return fmt.Errorf("forget keys: %w", err)
		}
		if err := q.EndLostSignIns(ctx, dbsqlc.EndLostSignInsParams{EndReason: endReason, Headers: under}); err != nil {
			return fmt.Errorf("end sessions: %w", err)
		}
		for _, remove := range []func(context.Context, [][]byte) error{
			q.DeleteExternalAuthLinksUnder, q.DeleteGitSSHKeysUnder, q.DeleteSettingsUnder, q.DeleteACMEDataUnder, q.DeleteStatePiecesUnder,
		} {
			if err := remove(ctx, under); err != nil {
				return fmt.Errorf("delete what the lost keys encrypt: %w", err)
			}
		}
		fields := map[string]any{}
		for kind, n := range loss.Values {
			fields[string(kind)] = n
		}
		return audit.Record(ctx, q, audit.Entry{
			Action: audit.Delete, Kind: audit.EncryptionKey, Name: strings.Join(ids, " "), Fields: fields,
		})
	})
	return loss, err
}

func parseIDs(ids []string) ([]keyID, error) {
	var keys []keyID
	for _, id := range ids {
		raw, err := hex.DecodeString(id)
		if err != nil || len(raw) != idSize {
			return nil, fault.New(fault.Invalid, "%q is not the id of a key", id).
				WithDetail("The server names the ids of missing keys when it starts: 16 hexadecimal digits each.")
		}
		if key := keyID(raw); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// headers returns what values under some keys begin with.
func headers(keys []keyID) [][]byte {
	var out [][]byte
	for _, key := range keys {
		out = append(out, headerOf(key))
	}
	return out
}
