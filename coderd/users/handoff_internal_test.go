package users

import (
	"crypto/sha256"
	"encoding/base64"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/signed"
)

// A code lasts a minute, and as long as servers' clocks may differ.
func TestLoginCodeExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signer, err := signed.New(make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte("x"))
		code, err := signer.Sign(handoffPurpose, handoff{"key", base64.RawURLEncoding.EncodeToString(sum[:])}, handoffLifetime)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + signed.Leeway - time.Second)
		if key, ok := keyOfCode(signer, code, "x"); !ok || key != "key" {
			t.Errorf("in time: %q, %v", key, ok)
		}
		time.Sleep(2 * time.Second)
		if _, ok := keyOfCode(signer, code, "x"); ok {
			t.Error("a code works for ever")
		}
	})
}
