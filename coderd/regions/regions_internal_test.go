package regions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/region"
)

// TestRechecks: a proxy hears whose devices may be others, as it calls them, and is not told of more than it reads.
func TestRechecks(t *testing.T) {
	t.Parallel()
	proxy, user := uuid.New(), uuid.New()
	s := New(Options{Alias: func(p, u uuid.UUID) uuid.UUID { return uuid.NewSHA1(p, u[:]) }})
	many := make([]uuid.UUID, region.MaxOwners+1)
	for i := range many {
		many[i] = uuid.New()
	}
	for name, c := range map[string]struct {
		users []uuid.UUID
		want  region.Update
	}{
		"a user":    {[]uuid.UUID{user}, region.Update{Recheck: true, Owners: []uuid.UUID{uuid.NewSHA1(proxy, user[:])}}},
		"everybody": {[]uuid.UUID{uuid.Nil}, region.Update{Recheck: true}},
		"very many": {many, region.Update{Recheck: true}},
	} {
		if diff := cmp.Diff(c.want, s.rechecks(proxy, c.users)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
