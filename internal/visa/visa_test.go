package visa_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/signedtoken"
	"github.com/codermesh/codermesh/v2/internal/visa"
)

var now = time.Unix(1_800_000_000, 0)

func signed(t testing.TB, key []byte, edit func(*visa.Visa)) secret.Token {
	t.Helper()
	v := visa.Visa{Visit: uuid.New(), Agent: uuid.New(), Node: uuid.New(), Port: 8080, Expires: now.Add(visa.Lifetime).Unix()}
	if edit != nil {
		edit(&v)
	}
	token, err := visa.Sign(key, v)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestVisa(t *testing.T) {
	t.Parallel()
	key := secret.Token("of the agent").Hash()
	good := signed(t, key, nil)
	if v, err := visa.Open(key, good, now); err != nil || v.Port != 8080 {
		t.Fatalf("got %+v, %v", v, err)
	}
	payload, sum, _ := strings.Cut(good.Reveal(), ".")
	for _, service := range []uint16{meshport.Session, meshport.SSH} {
		if v, err := visa.Open(key, signed(t, key, func(v *visa.Visa) { v.Port, v.Service = 0, service }), now); err != nil || v.Service != service {
			t.Errorf("service %d: %+v, %v", service, v, err)
		}
	}
	if v, err := visa.Open(key, signed(t, key, func(v *visa.Visa) { v.Port, v.UDP = 0, 53 }), now); err != nil || v.UDP != 53 {
		t.Errorf("a UDP port: %+v, %v", v, err)
	}
	other, _, _ := strings.Cut(signed(t, key, func(v *visa.Visa) { v.Port = 22 }).Reveal(), ".")
	for name, token := range map[string]secret.Token{
		"another agent's":     signed(t, secret.Token("of another").Hash(), nil),
		"another's payload":   secret.Token(other + "." + sum),
		"expired":             signed(t, key, func(v *visa.Visa) { v.Expires = now.Add(-visa.Leeway).Unix() }),
		"no port":             signed(t, key, func(v *visa.Visa) { v.Port = 0 }),
		"no such service":     signed(t, key, func(v *visa.Visa) { v.Port, v.Service = 0, meshport.AgentRPC }),
		"two in one":          signed(t, key, func(v *visa.Visa) { v.Service = meshport.SSH }),
		"TCP and UDP":         signed(t, key, func(v *visa.Visa) { v.UDP = 53 }),
		"UDP and SSH":         signed(t, key, func(v *visa.Visa) { v.Port, v.UDP, v.Service = 0, 53, meshport.SSH }),
		"three in one":        signed(t, key, func(v *visa.Visa) { v.Terminal, v.Service = true, meshport.SSH }),
		"no signature":        secret.Token(payload),
		"an empty signature":  secret.Token(payload + "."),
		"a longer signature":  good + "A",
		"a changed signature": good[:len(good)-2] + "__",
		"nothing":             "",
		"too long":            secret.Token(strings.Repeat("a", 1<<16)),
	} {
		if _, err := visa.Open(key, token, now); !errors.Is(err, visa.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := signed(t, key, nil)
	_, err := visa.Open(key, late, now.Add(visa.Lifetime+visa.Leeway))
	if !errors.Is(err, visa.ErrInvalid) || !strings.Contains(err.Error(), "check the clock") {
		t.Errorf("a visa that has expired by the agent's clock: %v", err)
	}
	// An agent without a token accepts no visa, although HMAC accepts an empty key.
	if _, err := visa.Open(nil, signed(t, nil, nil), now); !errors.Is(err, visa.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}

// TestBounds: a visa is valid until the clocks may no longer differ, and has a longest form.
func TestBounds(t *testing.T) {
	t.Parallel()
	key := secret.Token("of the agent").Hash()
	if visa.Lifetime != 5*time.Minute || visa.Leeway != time.Minute {
		t.Errorf("a visa is valid for %s, and %s longer: docs/regions.md promises 5m and 1m", visa.Lifetime, visa.Leeway)
	}
	last := now.Add(visa.Lifetime + visa.Leeway - time.Second)
	if _, err := visa.Open(key, signed(t, key, nil), last); err != nil {
		t.Errorf("in the last second: %v", err)
	}
	for length, ok := range map[int]bool{1024: true, 1026: false} { // base64 without padding never has 1025
		if _, err := visa.Open(key, signedOf(t, key, length), now); (err == nil) != ok {
			t.Errorf("a visa of %d bytes: %v", length, err)
		}
	}
	for length, ok := range map[int]bool{1040: true, 1041: false} {
		request := "renew " + strings.Repeat("a", length-len("renew "))
		if verb, _, err := visa.ReadRequest(strings.NewReader(request + "\n")); (err == nil) != ok || ok && verb != visa.Renew {
			t.Errorf("a request of %d bytes: %q, %v", length, verb, err)
		}
	}
	broken, w := io.Pipe()
	broken.Close()
	if err := visa.WriteRequest(w, visa.OpenPort, "x"); err == nil {
		t.Error("a request to an agent that has gone is written")
	}
}

// signedOf returns a visa of a length, with a field of a later version.
func signedOf(t *testing.T, key []byte, length int) secret.Token {
	t.Helper()
	for n := range length {
		token, err := signedtoken.Sign(key, "visa", map[string]any{"p": 8080, "e": now.Unix(), "later": strings.Repeat("x", n)})
		if err != nil {
			t.Fatal(err)
		}
		if len(token) == length {
			return token
		}
	}
	t.Fatalf("no visa has %d bytes", length)
	return ""
}

// What follows a request belongs to the app.
func TestRequest(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := visa.WriteRequest(&b, visa.OpenPort, "x.y"); err != nil {
		t.Fatal(err)
	}
	b.WriteString("GET / HTTP/1.1")
	verb, token, err := visa.ReadRequest(&b)
	if err != nil || verb != visa.OpenPort || token != "x.y" || b.String() != "GET / HTTP/1.1" {
		t.Fatalf("got %q, %q, %v, then %q", verb, token.Reveal(), err, b.String())
	}
	for _, text := range []string{"", "open x", "close x\n", strings.Repeat("a", 1<<16) + "\n", "\n"} {
		if _, _, err := visa.ReadRequest(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q is accepted", text)
		}
	}
}

// FuzzRequest checks that no request makes a visa, and that reading one is bounded.
func FuzzRequest(f *testing.F) {
	key := secret.Token("of the agent").Hash()
	valid := signed(f, key, nil).Reveal()
	f.Add("open " + valid + "\nrest")
	f.Add("renew e30.\n")
	f.Add("open \n")
	f.Fuzz(func(t *testing.T, text string) {
		r := strings.NewReader(text)
		verb, token, err := visa.ReadRequest(r)
		if err != nil {
			return
		}
		if rest, _ := io.ReadAll(r); string(verb)+" "+token.Reveal()+"\n"+string(rest) != text {
			t.Fatalf("%q is read as %q %q", text, verb, token.Reveal())
		}
		if _, err := visa.Open(key, token, now); err == nil && token.Reveal() != valid {
			t.Fatalf("%q is a visa", token.Reveal())
		}
	})
}
