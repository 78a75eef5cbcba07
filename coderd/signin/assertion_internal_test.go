package signin

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// keyPair returns the PEM of a new RSA key and of its certificate.
func keyPair(t *testing.T) (key *rsa.PrivateKey, keyPEM, certPEM []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
}

// TestAssertion: the server proves who it is with a token that its key signed, for one URL and a few minutes.
func TestAssertion(t *testing.T) {
	t.Parallel()
	key, keyPEM, certPEM := keyPair(t)
	a, err := newAssertions("coder", keyPEM, certPEM)
	if err != nil {
		t.Fatal(err)
	}
	const tokenURL = "https://idp.example/token"
	opts, err := a.options(tokenURL)
	if err != nil {
		t.Fatal(err)
	}
	// The library shows options only in a URL.
	page, err := url.Parse((&oauth2.Config{}).AuthCodeURL("", opts...))
	if err != nil {
		t.Fatal(err)
	}
	q := page.Query()
	if got := q.Get("client_assertion_type"); got != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		t.Errorf("type %q", got)
	}
	signed, err := jose.ParseSigned(q.Get("client_assertion"), []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := signed.Verify(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Issuer   string `json:"iss"`
		Subject  string `json:"sub"`
		Audience string `json:"aud"`
		ID       string `json:"jti"`
		Expiry   int64  `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.Unix(claims.Expiry, 0)); claims.Issuer != "coder" || claims.Subject != "coder" || claims.Audience != tokenURL || claims.ID == "" || left <= 0 || left > assertionTime {
		t.Errorf("claims: %+v", claims)
	}
	block, _ := pem.Decode(certPEM)
	sum := sha1.Sum(block.Bytes)
	if got := signed.Signatures[0].Protected.ExtraHeaders["x5t"]; got != base64.RawURLEncoding.EncodeToString(sum[:]) {
		t.Errorf("x5t %v", got)
	}

	_, _, otherCert := keyPair(t)
	for what, bad := range map[string][2][]byte{"another certificate": {keyPEM, otherCert}, "no certificate": {keyPEM, nil}, "no key": {nil, certPEM}, "a certificate as key": {certPEM, certPEM}} {
		if _, err := newAssertions("coder", bad[0], bad[1]); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}
