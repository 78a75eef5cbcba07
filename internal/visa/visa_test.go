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
