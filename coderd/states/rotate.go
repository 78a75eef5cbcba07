package states

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/fault"
)

// page is how many states are looked for at once.
const page = 100

// Check returns a fault, Invalid, when the database holds states under keys that the ring lacks. It blocks for one query.
func (r *Keyring) Check(ctx context.Context, db *database.DB) error {
	counts, err := db.CountStateKeys(ctx)
	if err != nil {
		return fmt.Errorf("count states by key: %w", err)
	}
	var missing []string
	for _, c := range counts {
		if len(c.StateKey) == 0 {
			continue // not encrypted yet
		}
		if id := keyID(c.StateKey); r.find(id) == nil {
			missing = append(missing, fmt.Sprintf("%s (%d states)", id, c.States))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var have []string
	for _, k := range r.keys {
		have = append(have, k.id.String())
	}
	return fault.New(fault.Invalid, "The database holds Terraform states that are encrypted with keys which the server does not have: %s", strings.Join(missing, ", ")).
		WithDetail("It has %s. Give it the missing ones beside that: the file of --state-encryption-key-file may hold several. Nothing was changed.", strings.Join(have, ", "))
}

// Reencrypt encrypts every state that is not under the first key, and says in the log what it did. It goes on beside builds,
// and may be stopped and run again at any time.
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
			case fault.CodeOf(err) == fault.Conflict: // damaged: what is stored stays
				log.Error("state not encrypted anew", "reason", "build "+id.String(), "err", err)
				broken = append(broken, id)
			case err != nil:
				return fmt.Errorf("encrypt state of build %s: %w", id, err)
			default:
				done++
			}
		}
	}
	if done > 0 || len(broken) > 0 {
		log.Info("states encrypted with the first key", "reason", fmt.Sprintf("%d states, key %s, %d left out", done, first, len(broken)))
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
