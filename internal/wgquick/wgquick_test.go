package wgquick_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

func encode(t testing.TB, digits string) string {
	t.Helper()
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// TestParseKey checks that keys of real pairs are accepted, and everything else is refused with an error that does not repeat it.
func TestParseKey(t *testing.T) {
	t.Parallel()
	pair, err := wgquick.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	text := pair.Public.String()
	if got, err := wgquick.ParseKey(text); err != nil || got != pair.Public {
		t.Errorf("%s: got %v, %v", text, got, err)
	}
	ff := strings.Repeat("ff", 30)
	for what, bad := range map[string]string{
		"nothing": "", "hex": hex.EncodeToString(pair.Public[:]), "a line break": text[:20] + "\n" + text[20:], "a space": " " + text, "no padding": strings.TrimSuffix(text, "="),
		"another alphabet": strings.Repeat("_", 43) + "=", "bits that do not count": strings.Repeat("A", 42) + "B=", "31 bytes": base64.StdEncoding.EncodeToString(make([]byte, 31)),
		"33 bytes": base64.StdEncoding.EncodeToString(make([]byte, 33)), "10 000 characters": strings.Repeat("A", 10_000),
		// The points of low order, https://cr.yp.to/ecdh.html#validate.
		"order 1":        encode(t, strings.Repeat("00", 32)),
		"order 2":        encode(t, "01"+strings.Repeat("00", 31)),
		"order 8":        encode(t, "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
		"order 8, too":   encode(t, "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
		"p-1":            encode(t, "ec"+ff+"7f"),
		"p":              encode(t, "ed"+ff+"7f"),
		"p+1":            encode(t, "ee"+ff+"7f"),
		"p+9":            encode(t, "f6"+ff+"7f"), // the base point in another form
		"2^255-1":        encode(t, "ff"+ff+"7f"),
		"with a top bit": encode(t, hex.EncodeToString(append(bytes.Clone(pair.Public[:31]), pair.Public[31]|0x80))),
	} {
		_, err := wgquick.ParseKey(bad)
		if f := fault.As(err); f == nil || f.Code != fault.Invalid || f.Detail == "" || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if _, err := wgquick.ParseKey(encode(t, "09"+strings.Repeat("00", 31))); err != nil {
		t.Errorf("the base point, which is a public key of 1: %v", err)
	}
}

// TestParseKeyBelowTheModulus: keys that are large numbers, and still less than 2^255-19, have one form.
func TestParseKeyBelowTheModulus(t *testing.T) {
	t.Parallel()
	ones, zeros := strings.Repeat("ff", 8), strings.Repeat("00", 8)
	for what, digits := range map[string]string{
		"p-2":              "eb" + strings.Repeat("ff", 30) + "7f",
		"the second word":  ones + zeros + ones + ones[:14] + "7f",
		"the third word":   ones + ones + zeros + ones[:14] + "7f",
		"the highest word": ones + ones + ones + "fe" + ones[:12] + "7f",
	} {
		if _, err := wgquick.ParseKey(encode(t, digits)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzParseKey checks that every key that is accepted has one form, and that a pair of programs agree on a secret with it.
func FuzzParseKey(f *testing.F) {
	f.Add("")
	f.Add(strings.Repeat("A", 43) + "=")
	f.Add("zHOEd2214uAh4xHu8OLBbztEkkqstliZ+ELs7Mi2QAA=")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := wgquick.ParseKey(text)
		if err != nil {
			return
		}
		if key.String() != text || key == (wgquick.Key{}) || key[31]&0x80 != 0 {
			t.Errorf("%q is accepted as %s", text, key)
		}
	})
}

// TestPair checks that a pair belongs together, and that its private key is clamped and prints as a fingerprint.
func TestPair(t *testing.T) {
	t.Parallel()
	pair, err := wgquick.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(pair.Private.Reveal())
	if err != nil || len(raw) != wgquick.KeySize {
		t.Fatalf("%d bytes, %v", len(raw), err)
	}
	private := [wgquick.KeySize]byte(raw)
	clamped := private
	wgquick.Clamp(&clamped)
	if clamped != private {
		t.Error("the private key is not clamped")
	}
	if got := wgquick.Public(private); got != pair.Public {
		t.Errorf("got %s, want %s", got, pair.Public)
	}
	if strings.Contains(pair.Private.String(), pair.Private.Reveal()) {
		t.Error("the private key prints as it is")
	}
}

// TestClamp: a private key is a multiple of eight whose highest bit is the second one (RFC 7748, section 5).
func TestClamp(t *testing.T) {
	t.Parallel()
	for given, want := range map[byte][2]byte{0xff: {0xf8, 0x7f}, 0: {0, 0x40}, 0x0f: {0x08, 0x4f}} {
		var key [wgquick.KeySize]byte
		for i := range key {
			key[i] = given
		}
		wgquick.Clamp(&key)
		if key[0] != want[0] || key[31] != want[1] || bytes.Count(key[1:31], []byte{given}) != 30 {
			t.Errorf("bytes %#x: got %x", given, key)
		}
	}
}

// TestConfig checks the text of a configuration, with and without its private key.
func TestConfig(t *testing.T) {
	t.Parallel()
	config := wgquick.Config{
		Private: "cHJpdmF0ZQ==", Address: netip.MustParseAddr("fd3b:8e1f:47c2::1"), DNS: "fd3b:8e1f:47c2::53", MTU: 1280,
		Peer: "cHVibGlj", AllowedIPs: "fd3b:8e1f:47c2::/48", Endpoint: "wg.example.com:51820",
	}
	const want = `[Interface]
PrivateKey = cHJpdmF0ZQ==
Address = fd3b:8e1f:47c2::1/128
DNS = fd3b:8e1f:47c2::53
MTU = 1280

[Peer]
PublicKey = cHVibGlj
AllowedIPs = fd3b:8e1f:47c2::/48
Endpoint = wg.example.com:51820
PersistentKeepalive = 25
`
	if got := config.Text(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	config.Private = ""
	if got := config.Text(); !strings.HasPrefix(got, "[Interface]\n# PrivateKey = ") || strings.Contains(got, "\nPrivateKey") {
		t.Errorf("without a private key: got\n%s", got)
	}
}
