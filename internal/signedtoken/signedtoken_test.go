package signedtoken_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/signedtoken"
)

// Programs of two releases sign and verify each other's tokens: the form must not change.
const golden secret.Token = "eyJhIjoxfQ.u0CHxx1eEP7MPOC_7gvIThJlsYexHL8eNP4fVlNSgag"

var key = bytes.Repeat([]byte{7}, 32)

func TestToken(t *testing.T) {
	t.Parallel()
	token, err := signedtoken.Sign(key, "visa", map[string]int{"a": 1})
	if err != nil || token != golden {
		t.Fatalf("signed %s, %v, want %s", token.Reveal(), err, golden.Reveal())
	}
	var got map[string]int
	if err := signedtoken.Verify(key, "visa", golden, &got); err != nil || got["a"] != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	payload, sum, _ := strings.Cut(golden.Reveal(), ".")
	list, err := signedtoken.Sign(key, "visa", []int{1})
	if err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]secret.Token{
		"empty": "", "no signature": secret.Token(payload), "empty signature": secret.Token(payload + "."), "another's payload": secret.Token("e30." + sum),
		"a cut signature": golden[:len(golden)-2], "padding": golden + "=", "a bit more": golden + "A", "other bits at the end": golden[:len(golden)-1] + "Z",
		"too long": secret.Token(strings.Repeat("a", 1<<16)), "another type": list,
	} {
		if err := signedtoken.Verify(key, "visa", forged, &got); !errors.Is(err, signedtoken.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := signedtoken.Verify(key, "visit", golden, &got); !errors.Is(err, signedtoken.ErrInvalid) {
		t.Errorf("for another purpose: %v", err)
	}
	if err := signedtoken.Verify(key[1:], "visa", golden, &got); !errors.Is(err, signedtoken.ErrInvalid) {
		t.Errorf("with another key: %v", err)
	}
	unsigned, err := signedtoken.Sign(nil, "visa", 1) // HMAC accepts an empty key
	if err != nil || !errors.Is(signedtoken.Verify(nil, "visa", unsigned, new(int)), signedtoken.ErrInvalid) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := signedtoken.Sign(key, "visa", func() {}); err == nil {
		t.Error("a function is signed")
	}
}

// TestLongest: a token of 4096 bytes is read, and none that is longer.
func TestLongest(t *testing.T) {
	t.Parallel()
	for length, ok := range map[int]bool{4096: true, 4098: false} { // base64 without padding never has 4097
		token, err := signedtoken.Sign(key, "visa", strings.Repeat("x", (length-44)*3/4-2))
		if err != nil || len(token) != length {
			t.Fatalf("%d bytes, %v", len(token), err)
		}
		if err := signedtoken.Verify(key, "visa", token, new(string)); (err == nil) != ok {
			t.Errorf("a token of %d bytes: %v", length, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add(golden.Reveal())
	f.Add("e30.e30")
	f.Add(".")
	f.Fuzz(func(t *testing.T, text string) {
		var got any
		if err := signedtoken.Verify(key, "visa", secret.Token(text), &got); err == nil && secret.Token(text) != golden {
			t.Errorf("%q is accepted", text)
		}
	})
}
