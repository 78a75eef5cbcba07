package mesh

import (
	"encoding/json"
	"testing"
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
