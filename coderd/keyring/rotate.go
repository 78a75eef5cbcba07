package keyring

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// Check returns a fault, Invalid, when the database holds values under keys that the ring lacks and that were not
// forgotten (Forget). ACME's data and the SSH host seed do not count: a server replaces what it cannot read. Check
// blocks for a few queries.
func (r *Ring) Check(ctx context.Context, db *database.DB) error {
	all, err := Usages(ctx, db.Queries)
	if err != nil {
		return err
	}
	var missing, ids []string
	for _, u := range all {
		if u.Key == "" || u.Forgotten || r.Has(u.Key) {
			continue
		}
		if needed := u.needed(); needed != "" {
			missing, ids = append(missing, fmt.Sprintf("%s (%s)", u.Key, needed)), append(ids, shell.POSIX(u.Key))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "The database holds values that are encrypted with keys that the server does not have: %s", strings.Join(missing, "; ")).
		WithDetail("It has %s. Add the missing ones: the file of --state-encryption-key-file can contain several. If they are lost for good, run: coder server keys forget %s. Nothing was changed.",
			strings.Join(r.IDs(), ", "), strings.Join(ids, " "))
}

// CheckServers returns a fault, Conflict, if a running server encrypts with another key than the ring does: a rotation
// would not end, and its result could be one that the server cannot read.
func (r *Ring) CheckServers(ctx context.Context, db *database.DB) error {
	servers, err := db.ListServers(ctx, database.ServerLifetime.Seconds())
	if err != nil {
		return fmt.Errorf("list servers: %w", err)
	}
	first := r.keys[0].id.String()
	for _, s := range servers {
		if len(s.StateKeys) > 0 && s.StateKeys[0] != first {
			return fault.New(fault.Conflict, "The server at %s encrypts with the key %s, not with %s", s.Url, s.StateKeys[0], first).
				WithDetail("Make %s the first key of every server and restart them, then rotate. Nothing was changed.",
					first)
		}
	}
	return nil
}

// Rotated counts the values of a kind that a rotation found under other keys than the first, or not encrypted at all.
type Rotated struct {
	Kind       Kind  `json:"kind"`
	Resealed   int64 `json:"encrypted"`  // now under the first key
	Unreadable int64 `json:"unreadable"` // unchanged: damaged, moved, or under a key that the ring lacks
}

// Rotate encrypts everything with the first key that is not, and reports each kind. It runs beside servers, and may be
// stopped and run again at any time: a value is replaced in one statement, and only if it has not changed meanwhile. It
// repeats until it finds nothing, because a build may copy a state while it is replaced. The audit log gets a row if
// anything was changed.
func (r *Ring) Rotate(ctx context.Context, db *database.DB, log *slog.Logger) ([]Rotated, error) {
	report := make([]Rotated, len(kinds))
	for {
		p := pass{ring: r, db: db, log: log}
		for i, k := range kinds {
			p.Rotated = Rotated{Kind: k.Kind, Resealed: report[i].Resealed}
			if err := k.reseal(ctx, &p); err != nil {
				return nil, err
			}
			report[i] = p.Rotated
		}
		if p.changed == 0 {
			break
		}
	}
	fields := map[string]any{}
	for _, k := range report {
		if k.Resealed > 0 {
			fields[string(k.Kind)] = k.Resealed
		}
		if k.Resealed > 0 || k.Unreadable > 0 {
			log.InfoContext(ctx, "values encrypted with the first key", "kind", k.Kind, "key", r.keys[0].id, "rows",
				k.Resealed, "broken", k.Unreadable)
		}
	}
	if len(fields) == 0 {
		return report, nil
	}
	return report, audit.Record(ctx, db.Queries, audit.Entry{
		Action: audit.Write, Kind: audit.EncryptionKey, Name: r.keys[0].id.String(), Fields: fields,
	})
}
