package signed_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

func signer(t testing.TB, fill byte) *signed.Signer {
	t.Helper()
	s, err := signed.New(bytes.Repeat([]byte{fill}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSigned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := signer(t, 1)
		token, err := s.Sign("app", map[string]int{"a": 1}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]int
		if err := s.Verify("app", token, &got); err != nil || got["a"] != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		payload, sum, _ := strings.Cut(token.Reveal(), ".")
		other, err := s.Sign("app", map[string]int{"a": 2}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		otherPayload, _, _ := strings.Cut(other.Reveal(), ".")
		for name, forged := range map[string]string{
			"empty": "", "no signature": payload, "empty signature": payload + ".", "another's payload": otherPayload + "." + sum,
			"a cut signature": payload + "." + sum[:len(sum)-2], "long": strings.Repeat("a", 1<<16), "padding": token.Reveal() + "=",
			"a bit more": token.Reveal() + "A",
		} {
			if err := s.Verify("app", secret.Token(forged), &got); !errors.Is(err, signed.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Verify("health", token, &got); !errors.Is(err, signed.ErrInvalid) {
			t.Errorf("for another purpose: %v", err)
		}
		if err := signer(t, 2).Verify("app", token, &got); !errors.Is(err, signed.ErrInvalid) {
			t.Errorf("of another deployment: %v", err)
		}
		time.Sleep(time.Minute + signed.Leeway - time.Second) // the bubble's clock, as a server's whose clock differs
		if err := s.Verify("app", token, &got); err != nil {
			t.Errorf("within the leeway: %v", err)
		}
		time.Sleep(time.Second)
		if err := s.Verify("app", token, &got); !errors.Is(err, signed.ErrInvalid) {
			t.Errorf("after its time: %v", err)
		}
	})
	if _, err := signed.New(nil); err == nil {
		t.Error("a key of no bytes is taken")
	}
}

// TestLoad checks that every server of a deployment has the same key.
func TestLoad(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	one, err := signed.Load(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	two, err := signed.Load(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	token, err := one.Sign("app", "x", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := two.Verify("app", token, &got); err != nil || got != "x" {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzOpen(f *testing.F) {
	s := signer(f, 1)
	token, err := s.Sign("app", "x", time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token.Reveal())
	f.Add("e30.e30")
	f.Add(".")
	f.Fuzz(func(t *testing.T, text string) {
		var got any
		if err := s.Verify("app", secret.Token(text), &got); err == nil && text != token.Reveal() {
			t.Errorf("%q is taken", text)
		}
	})
}

// TestDerive checks that secrets differ by purpose and deployment, and not otherwise: servers of two releases derive the same.
func TestDerive(t *testing.T) {
	t.Parallel()
	one := signer(t, 1).Derive("relays")
	if one != signer(t, 1).Derive("relays") {
		t.Error("two servers of a deployment derive different secrets")
	}
	if one == signer(t, 2).Derive("relays") || one == signer(t, 1).Derive("other") || one == [32]byte{} {
		t.Error("a secret is not its own deployment's and purpose's")
	}
	const known = "7b9018cea4bddd07772564ddd895d71403d01392b2c53eb4ccd11bca76fffc8d" // HMAC-SHA-256 of "\x00mesh of relays"
	if got := fmt.Sprintf("%x", signer(t, 1).Derive("mesh of relays")); got != known {
		t.Errorf("got %s, want %s, as earlier releases derive it", got, known)
	}
}
