package signin

import (
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// assertionTime is how long a proof of this server's identity is valid.
const assertionTime = 5 * time.Minute

// assertions prove to a provider who this server is: JSON Web Tokens signed with its key (RFC 7523, 2.2). Nil proves
// nothing.
type assertions struct {
	client string
	signer jose.Signer
}

func newAssertions(client string, keyPEM, certPEM []byte) (*assertions, error) {
	key, err := rsaKey(keyPEM)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--oidc-client-key-file must be the PEM of an RSA key: %w", err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fault.New(fault.Invalid, "--oidc-client-cert-file must be the PEM of a certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--oidc-client-cert-file must be the PEM of a certificate: %w", err)
	}
	if public, ok := cert.PublicKey.(*rsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, fault.New(fault.Invalid, "--oidc-client-cert-file is not the certificate of --oidc-client-key-file")
	}
	sum := sha1.Sum(cert.Raw) // by which providers find the certificate (RFC 7515, 4.1.7); nothing relies on its strength
	opts := (&jose.SignerOptions{}).WithType("JWT").WithHeader("x5t", base64.RawURLEncoding.EncodeToString(sum[:]))
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, opts)
	if err != nil {
		return nil, fmt.Errorf("sign with the client's key: %w", err)
	}
	return &assertions{client, signer}, nil
}

func rsaKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("it is not PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	rsaKey, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a key of another kind")
	}
	return rsaKey, nil
}

// options returns the parameters that prove who this server is, in a request to a URL.
func (a *assertions) options(tokenURL string) ([]oauth2.AuthCodeOption, error) {
	if a == nil {
		return nil, nil
	}
	now := time.Now()
	payload, err := json.Marshal(map[string]any{
		"iss": a.client, "sub": a.client, "aud": tokenURL, "jti": secret.Text(22),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(assertionTime).Unix(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode assertion: %w", err)
	}
	signed, err := a.signer.Sign(payload)
	if err != nil {
		return nil, fmt.Errorf("sign assertion: %w", err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		return nil, fmt.Errorf("encode assertion: %w", err)
	}
	return []oauth2.AuthCodeOption{
		oauth2.SetAuthURLParam("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
		oauth2.SetAuthURLParam("client_assertion", text),
	}, nil
}
