package states

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/fault"
)

// page is the number of states in one query.
const page = 100

// Check returns a fault, Invalid, when the database holds states, SSH keys or users' secrets under keys that the ring lacks and that were
// not forgotten (Forget). It blocks for a few queries.
func (r *Keyring) Check(ctx context.Context, db *database.DB) error {
	counts, err := countKeys(ctx, db.Queries)
	if err != nil {
		return err
	}
	forgotten, err := db.ListForgottenStateKeys(ctx)
	if err != nil {
		return fmt.Errorf("list forgotten keys: %w", err)
	}
	for _, id := range forgotten {
		delete(counts, keyID(id))
	}
	var missing []string
	for _, id := range slices.SortedFunc(maps.Keys(counts), func(a, b keyID) int { return bytes.Compare(a[:], b[:]) }) {
		if r.find(id) != nil {
			continue
		}
		c, what := counts[id], []string{}
		if c.States > 0 {
			what = append(what, fmt.Sprintf("%d states", c.States))
		}
		if c.SSHKeys > 0 {
			what = append(what, fmt.Sprintf("%d SSH keys", c.SSHKeys))
		}
		if c.Secrets > 0 {
			what = append(what, fmt.Sprintf("%d user secrets", c.Secrets))
		}
		missing = append(missing, fmt.Sprintf("%s (%s)", id, strings.Join(what, ", ")))
	}
	if len(missing) == 0 {
		return nil
	}
	var have []string
	for _, k := range r.keys {
		have = append(have, k.id.String())
	}
	return fault.New(fault.Invalid, "The database holds Terraform states, SSH keys or user secrets that are encrypted with keys that the server does not have: %s", strings.Join(missing, ", ")).
		WithDetail("It has %s. Add the missing ones: the file of --state-encryption-key-file can contain several. If a key is lost for good, run: coder server forget-states --key ID. Nothing was changed.", strings.Join(have, ", "))
}

// Reencrypt encrypts every state that is not under the first key, and logs what it did. It runs beside builds, and may be
// stopped and run again at any time.
func (r *Keyring) Reencrypt(ctx context.Context, db *database.DB, log *slog.Logger) error {
	first := r.keys[0].id
	done, broken := 0, []uuid.UUID{}
	for {
		ids, err := db.ListStatesNotUnder(ctx, dbsqlc.ListStatesNotUnderParams{StateKey: first[:], MaxRows: int32(page + len(broken))})
		if err != nil {
			return fmt.Errorf("list states to encrypt: %w", err)
		}
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return slices.Contains(broken, id) })
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			err := db.InTx(ctx, func(q *dbsqlc.Queries) error { return r.reencrypt(ctx, q, id) })
			switch {
			case fault.CodeOf(err) == fault.Conflict: // damaged: the stored state stays
				log.Error("cannot re-encrypt state", "build", id, "err", err)
				broken = append(broken, id)
			case err != nil:
				return fmt.Errorf("encrypt state of build %s: %w", id, err)
			default:
				done++
			}
		}
	}
	if done > 0 || len(broken) > 0 {
		log.Info("states encrypted with the first key", "states", done, "key", first, "broken", len(broken))
	}
	return nil
}

func (r *Keyring) reencrypt(ctx context.Context, q *dbsqlc.Queries, build uuid.UUID) error {
	row, err := q.LockBuildState(ctx, build)
	if database.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	state, err := r.Open(row.WorkspaceID, row.State)
	if err != nil {
		return err
	}
	return q.ReencryptBuildState(ctx, dbsqlc.ReencryptBuildStateParams{ID: build, State: r.Seal(row.WorkspaceID, state)})
}
