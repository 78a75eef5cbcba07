package keyring

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// Usage counts the values that one key encrypts.
type Usage struct {
	// Key is the key's id; "" stands for values that are not encrypted, which an older release has stored.
	Key    string
	Values map[Kind]int64
	// Forgotten reports that servers may lack the key (Forget).
	Forgotten bool
}

// String lists the counts by kind.
func (u Usage) String() string { return u.text(func(kind) bool { return true }) }

// needed is String without the kinds for which a server does not need the key.
func (u Usage) needed() string { return u.text(func(k kind) bool { return !k.replaced }) }

func (u Usage) text(include func(kind) bool) string {
	var words []string
	for _, k := range kinds {
		if n := u.Values[k.Kind]; n > 0 && include(k) {
			words = append(words, fmt.Sprintf("%s: %d", k.Kind, n))
		}
	}
	return strings.Join(words, ", ")
}

// Usages counts everything that is encrypted in the database by key, in the order of the ids.
func Usages(ctx context.Context, q *dbsqlc.Queries) ([]Usage, error) {
	counts, err := q.CountSealed(ctx)
	if err != nil {
		return nil, fmt.Errorf("count encrypted values: %w", err)
	}
	if has, err := q.HasWebhooks(ctx); err != nil {
		return nil, fmt.Errorf("look for webhooks: %w", err)
	} else if has {
		rows, err := q.CountSealedWebhooks(ctx)
		if err != nil {
			return nil, fmt.Errorf("count encrypted values of webhooks: %w", err)
		}
		for _, row := range rows {
			counts = append(counts, dbsqlc.CountSealedRow{
				Kind: string(Webhooks), Header: row.Header, Number: row.Number,
			})
		}
	}
	lost, err := q.ListForgottenStateKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list forgotten keys: %w", err)
	}
	all := map[string]*Usage{}
	for _, c := range counts {
		key := ""
		if id, encrypted := keyOf(c.Header); encrypted {
			key = id.String()
		}
		if all[key] == nil {
			forgotten := slices.ContainsFunc(lost, func(id []byte) bool { return keyID(id).String() == key })
			all[key] = &Usage{Key: key, Values: map[Kind]int64{}, Forgotten: forgotten}
		}
		all[key].Values[Kind(c.Kind)] += c.Number
	}
	out := make([]Usage, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[key])
	}
	return out, nil
}

// KeysInUse returns the ids of the keys that encrypt something in the database, in order, without those that were
// forgotten.
func KeysInUse(ctx context.Context, q *dbsqlc.Queries) ([]string, error) {
	all, err := Usages(ctx, q)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, u := range all {
		if u.Key != "" && !u.Forgotten {
			ids = append(ids, u.Key)
		}
	}
	return ids, nil
}
