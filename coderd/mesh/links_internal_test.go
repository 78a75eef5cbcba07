package mesh

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
)

// FuzzDecodeGreeting checks that what another server sends before its proof is bounded, and that a proof never prints.
func FuzzDecodeGreeting(f *testing.F) {
	f.Add([]byte(`{"nonce":"abc","proof":"e30.AAAA"}`))
	f.Add([]byte(`{"proof":""}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := decodeGreeting(data)
		if err != nil {
			return
		}
		if len(data) > maxGreeting || len(g.Nonce) > 64 || g.Proof == "" || g.Text != "" {
			t.Fatalf("accepted %q as %+v", data, g)
		}
		if _, err := json.Marshal(g); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDialsFirst checks that of two servers exactly one dials first, whether they know their order or not.
func TestDialsFirst(t *testing.T) {
	t.Parallel()
	small, large := uuid.UUID{1}, uuid.UUID{2}
	for _, c := range []struct {
		self    uuid.UUID
		to      Replica
		dials   bool
		because string
	}{
		{small, Replica{ID: large, Started: -1}, true, "it started later"},
		{large, Replica{ID: small, Started: -1}, true, "it started later"},
		{small, Replica{ID: large, Started: 1}, false, "it started earlier"},
		{large, Replica{ID: small, Started: 1}, false, "it started earlier"},
		{small, Replica{ID: large}, true, "its id is smaller"},
		{large, Replica{ID: small}, false, "its id is larger"},
	} {
		if got := dialsFirst(c.self, c.to); got != c.dials {
			t.Errorf("server %s dials %+v first: %t, want %t, because %s", c.self, c.to, got, c.dials, c.because)
		}
	}
}
