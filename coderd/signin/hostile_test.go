package signin_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// tokenPart encodes a header or the claims of a token.
func tokenPart(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// tokenHead returns the header of a token, and its claims as they are encoded.
func tokenHead(t *testing.T, raw string) (header map[string]any, payload string) {
	t.Helper()
	parts := strings.Split(raw, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	return decode[map[string]any](t, string(text)), parts[1]
}

// resign signs the claims of a token with another key.
func resign(t *testing.T, raw string, alg jose.SignatureAlgorithm, key any, more map[jose.HeaderKey]any) string {
	t.Helper()
	_, payload := tokenHead(t, raw)
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, &jose.SignerOptions{ExtraHeaders: more})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestForgedSignatures: an ID token counts only with a signature by one of the issuer's keys, whatever its header says about algorithms and keys.
func TestForgedSignatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(string) string{
		"no algorithm": func(raw string) string {
			_, payload := tokenHead(t, raw)
			return tokenPart(t, map[string]any{"alg": "none"}) + "." + payload + "."
		},
		"no algorithm, with the signature": func(raw string) string {
			header, payload := tokenHead(t, raw)
			header["alg"] = "NONE"
			return tokenPart(t, header) + "." + payload + raw[strings.LastIndexByte(raw, '.'):]
		},
		"no signature": func(raw string) string { return raw[:strings.LastIndexByte(raw, '.')+1] },
		"the client's secret": func(raw string) string { // a symmetric algorithm, whose key the attacker may know
			return resign(t, raw, jose.HS256, []byte(signintest.ClientSecret+strings.Repeat(" ", 16)), nil)
		},
		"the public key as a secret": func(raw string) string {
			return resign(t, raw, jose.HS256, x509.MarshalPKCS1PublicKey(w.provider.PublicKey()), nil)
		},
		"a key in the header": func(raw string) string {
			return resign(t, raw, jose.RS256, own, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: own.Public()}})
		},
		"a key at an address": func(raw string) string {
			return resign(t, raw, jose.RS256, own, map[jose.HeaderKey]any{"jku": w.provider.URL + "/evil", "x5u": w.provider.URL + "/evil", "kid": "../../evil"})
		},
		"another payload": func(raw string) string {
			header, payload := tokenHead(t, raw)
			text, err := base64.RawURLEncoding.DecodeString(payload)
			if err != nil {
				t.Fatal(err)
			}
			claims := decode[map[string]any](t, string(text))
			claims["sub"] = "another"
			return tokenPart(t, header) + "." + tokenPart(t, claims) + raw[strings.LastIndexByte(raw, '.'):]
		},
		"two signatures": func(raw string) string { return raw + raw[strings.LastIndexByte(raw, '.'):] },
		"none":           func(string) string { return "" },
	} {
		w.provider.Replace(forge)
		if name == "none" {
			w.refused(ann, http.StatusUnauthorized, "sent no ID token")
			continue
		}
		w.refused(ann, http.StatusUnauthorized, "The identity provider")
	}
	w.provider.Replace(nil)
	w.signIn(ann)
}

// TestAddressesAreExact: two addresses that are equal in the upper or lower case of some alphabet are different people's. Neither opens the
// other's account, nor does an address whose verification was said of another one.
func TestAddressesAreExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, u := range []sdk.CreateUserRequest{
		{Username: "kim", Email: "kim@corp.example", LoginType: sdk.LoginOIDC}, {Username: "ready", Email: "ready@corp.example", LoginType: sdk.LoginOIDC},
	} {
		if _, err := w.As("olga").CreateUser(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	for i, address := range []string{"\u212aim@corp.example", "k\u0131m@corp.example", "k\u0456m@corp.example", "kim@\u212aorp.example"} {
		name := "evil" + string(rune('a'+i))
		evil := signintest.User{Subject: name, Username: name, Email: address, Name: "E", Verified: true}
		w.provider.SignIn(evil)
		b := w.browser()
		if p := b.open(callback); b.session() == "" {
			if p.status != http.StatusForbidden && p.status != http.StatusBadRequest {
				t.Errorf("%q: %s", address, p)
			}
			continue
		}
		if me := w.me(w.With(b.session())); me.Username == "kim" {
			t.Errorf("%q signs in as kim", address)
		}
	}
	// The ID token says that an address is verified, and the user info names another one, of which it says nothing.
	evil := signintest.User{Subject: "evil", Username: "evil", Email: "evil@corp.example", Name: "E", Verified: true}
	w.provider.Tamper(func(c map[string]any) { c["email"], c["email_verified"] = "evil@corp.example", true })
	w.provider.UserInfo(func(c map[string]any) {
		c["email"] = "ready@corp.example"
		delete(c, "email_verified")
	})
	w.refused(evil, http.StatusForbidden, "is not verified at the identity provider")
	// Of the same address, the ID token's word counts.
	w.provider.UserInfo(func(c map[string]any) { delete(c, "email_verified") })
	w.signIn(evil)
	w.provider.UserInfo(nil)
	w.provider.Tamper(nil)
	kim := signintest.User{Subject: "s-kim", Username: "other", Email: "KIM@corp.example", Name: "Kim", Verified: true}
	if me := w.me(w.signIn(kim)); me.Username != "kim" {
		t.Errorf("the owner of the address: %+v", me)
	}
}
