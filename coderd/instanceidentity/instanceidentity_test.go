package instanceidentity_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/smallstep/pkcs7"

	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	audience = "https://coder.example.com"
	vm       = "02aab8a4-74ef-476e-8182-f6d2ba4166a6"
	payer    = "8d10da13-8125-4ba9-a717-bf7490507b3d"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// party has a certificate.
type party struct {
	key  *rsa.PrivateKey
	cert *x509.Certificate
}

// issue makes a certificate that an authority signs. Without an authority it is a root.
func issue(t *testing.T, by *party, change func(*x509.Certificate)) *party {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	draft := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	change(draft)
	p := &party{key: key}
	if by == nil {
		by = &party{key: key, cert: draft}
	}
	der, err := x509.CreateCertificate(rand.Reader, draft, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return p
}

func authority(c *x509.Certificate) { c.IsCA = true }

// write makes a PEM file with the certificates of parties.
func write(t *testing.T, parties ...*party) string {
	t.Helper()
	var text bytes.Buffer
	for _, p := range parties {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw}); err != nil {
			t.Fatal(err)
		}
	}
	return writeFile(t, text.Bytes())
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// web answers requests by their URLs.
type web map[string]func() (int, []byte)

func (w web) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := w[r.URL.String()]
	if answer == nil {
		return nil, errors.New("no route to " + r.URL.Host)
	}
	status, body := answer()
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(bytes.NewReader(body)), Request: r, Header: http.Header{}}, nil
}

func verifier(t *testing.T, opts instanceidentity.Options, known web) *instanceidentity.Verifier {
	t.Helper()
	opts.Audience, opts.Client, opts.Now = audience, &http.Client{Transport: known}, func() time.Time { return now }
	v, err := instanceidentity.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// check compares the outcome of a proof with a fault, "" for none, that says something.
func check(t *testing.T, v *instanceidentity.Verifier, p instanceidentity.Proof, code fault.Code, says string, want instanceidentity.Instance) {
	t.Helper()
	got, err := v.Verify(t.Context(), p)
	if fault.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), says) {
		t.Fatalf("got %v, want %q: %q", err, code, says)
	}
	if err == nil && (got.Auth != want.Auth || got.ID != want.ID || got.Account != want.Account || !got.At.Equal(want.At)) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err != nil && got != (instanceidentity.Instance{}) {
		t.Errorf("a refused proof names %+v", got)
	}
}

// TestAWS checks that only AWS's keys sign documents.
func TestAWS(t *testing.T) {
	t.Parallel()
	region, stranger := issue(t, nil, authority), issue(t, nil, authority)
	old := issue(t, nil, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) })
	v := verifier(t, instanceidentity.Options{AWSCertificates: write(t, issue(t, nil, authority), region, old)}, nil)
	document := func(launch time.Time) string {
		return fmt.Sprintf(`{"accountId" : "123456789012", "instanceId" : "i-0123456789abcdef0", "pendingTime" : %q, "region" : "eu-central-1"}`, launch.Format(time.RFC3339))
	}
	sign := func(p *party, text string) string {
		sum := sha256.Sum256([]byte(text))
		s, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		b := base64.StdEncoding.EncodeToString(s)
		return b[:64] + "\n" + b[64:]
	}
	launched := now.Add(-48 * time.Hour)
	honest := document(launched)
	for name, tc := range map[string]struct {
		document, signature string
		code                fault.Code
		says                string
	}{
		"honest":            {honest, sign(region, honest), "", ""},
		"another signer":    {honest, sign(stranger, honest), fault.Unauthenticated, "no AWS region"},
		"another machine":   {strings.Replace(honest, "def0", "def1", 1), sign(region, honest), fault.Unauthenticated, "no AWS region"},
		"another account":   {strings.Replace(honest, "9012", "9013", 1), sign(region, honest), fault.Unauthenticated, "no AWS region"},
		"an old key":        {honest, sign(old, honest), fault.Unauthenticated, "is valid from"},
		"not yet launched":  {document(now.Add(time.Hour)), sign(region, document(now.Add(time.Hour))), fault.Unauthenticated, "in the future"},
		"an empty document": {honest, "", fault.Unauthenticated, "no AWS region"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := instanceidentity.ParseAWS(tc.document, tc.signature)
			if err != nil {
				t.Fatal(err)
			}
			check(t, v, p, tc.code, tc.says,
				instanceidentity.Instance{Auth: instanceidentity.AWS, ID: "i-0123456789abcdef0", Account: "123456789012", At: launched})
		})
	}
}

// attested makes attested data of Azure. certs go with the message.
func attested(t *testing.T, by *party, created time.Time, certs ...*party) string {
	t.Helper()
	const form = "01/02/06 15:04:05 -0700"
	content := fmt.Sprintf(`{"nonce":"1","vmId":%q,"subscriptionId":%q,"timeStamp":{"createdOn":%q,"expiresOn":%q}}`,
		strings.ToUpper(vm), payer, created.Format(form), created.Add(6*time.Hour).Format(form))
	message, err := pkcs7.NewSignedData([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	message.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	if err := message.SignWithoutAttr(by.cert, by.key, pkcs7.SignerInfoConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range certs {
		message.AddCertificate(c.cert)
	}
	der, err := message.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

const issuer = "http://www.microsoft.com/pkiops/certs/issuer.crt"

// named makes a certificate that names Azure, and where the one of its authority is.
func named(host, issuer string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.DNSNames = []string{host}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if issuer != "" {
			c.IssuingCertificateURL = []string{issuer}
		}
	}
}

// TestAzure checks that only Azure's certificates sign attested data, and where the server looks for their authorities.
func TestAzure(t *testing.T) {
	t.Parallel()
	root, strangers := issue(t, nil, authority), issue(t, nil, authority)
	between, bad := issue(t, root, authority), issue(t, strangers, authority)
	azure := issue(t, between, named("westus.metadata.azure.com", issuer))
	fetches := 0
	known := web{issuer: func() (int, []byte) {
		fetches++
		return http.StatusOK, between.cert.Raw
	}}
	online := verifier(t, instanceidentity.Options{AzureCertificates: write(t, root)}, known)
	offline := verifier(t, instanceidentity.Options{AzureCertificates: write(t, root)}, nil)
	full := verifier(t, instanceidentity.Options{AzureCertificates: write(t, between, root)}, nil)
	expired := issue(t, between, func(c *x509.Certificate) {
		named("metadata.azure.com", "")(c)
		c.NotAfter = now.Add(-time.Minute)
	})
	for name, tc := range map[string]struct {
		v         *instanceidentity.Verifier
		signature string
		code      fault.Code
		says      string
	}{
		"chain in the document":      {offline, attested(t, azure, now, between), "", ""},
		"chain of the operator":      {full, attested(t, azure, now), "", ""},
		"fetched chain":              {online, attested(t, azure, now), "", ""},
		"fetched chain, once more":   {online, attested(t, azure, now), "", ""},
		"no way to the chain":        {offline, attested(t, azure, now), fault.Unavailable, "cannot be verified now"},
		"another server's chain":     {online, attested(t, issue(t, between, named("metadata.azure.com", "http://example.com/issuer.crt")), now), fault.Unauthenticated, "unknown authority"},
		"a file's chain":             {online, attested(t, issue(t, between, named("metadata.azure.com", "file:///etc/passwd")), now), fault.Unauthenticated, "unknown authority"},
		"another authority":          {online, attested(t, issue(t, bad, named("metadata.azure.com", "")), now, bad), fault.Unauthenticated, "unknown authority"},
		"its own authority":          {online, attested(t, issue(t, bad, named("metadata.azure.com", "")), now, bad, strangers), fault.Unauthenticated, "unknown authority"},
		"another host":               {full, attested(t, issue(t, between, named("example.com", "")), now), fault.Unauthenticated, "is not for metadata.azure.com"},
		"a host that looks like one": {full, attested(t, issue(t, between, named("metadata.azure.com.example.com", "")), now), fault.Unauthenticated, "is not for metadata.azure.com"},
		"no dot":                     {full, attested(t, issue(t, between, named("xmetadata.azure.com", "")), now), fault.Unauthenticated, "is not for metadata.azure.com"},
		"an expired certificate":     {full, attested(t, expired, now), fault.Unauthenticated, "expired"},
		"an old document":            {full, attested(t, azure, now.Add(-6*time.Minute)), fault.Unauthenticated, "older than"},
		"a document of the future":   {full, attested(t, azure, now.Add(2*time.Minute)), fault.Unauthenticated, "in the future"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := instanceidentity.ParseAzure(tc.signature)
			if err != nil {
				t.Fatal(err)
			}
			check(t, tc.v, p, tc.code, tc.says, instanceidentity.Instance{Auth: instanceidentity.Azure, ID: vm, Account: payer, At: now})
		})
	}
	if fetches != 1 {
		t.Errorf("fetched %d times, want 1", fetches)
	}
	t.Run("a changed document", func(t *testing.T) {
		der, err := base64.StdEncoding.DecodeString(attested(t, azure, now, between))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(der, []byte(strings.ToUpper(vm)), []byte(payer), 1)
		p, err := instanceidentity.ParseAzure(base64.StdEncoding.EncodeToString(changed))
		if err != nil || bytes.Equal(changed, der) {
			t.Fatal(err)
		}
		check(t, full, p, fault.Unauthenticated, "", instanceidentity.Instance{})
	})
}

// TestGoogle checks that only Google's keys sign tokens, for this server, just now.
func TestGoogle(t *testing.T) {
	t.Parallel()
	good, stranger := issue(t, nil, authority), issue(t, nil, authority)
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &good.key.PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	token := func(by *party, change func(claims map[string]any)) string {
		claims := map[string]any{
			"iss": "https://accounts.google.com", "aud": audience, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "sub": "1",
			"google": map[string]any{"compute_engine": map[string]any{"instance_id": "152986662232938449", "project_id": "my-project", "zone": "us-west1-a"}},
		}
		change(claims)
		payload, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: by.key, KeyID: "1"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := s.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	same := func(map[string]any) {}
	offline := verifier(t, instanceidentity.Options{GoogleKeys: writeFile(t, keys)}, nil)
	const address = "https://www.googleapis.com/oauth2/v3/certs"
	online := verifier(t, instanceidentity.Options{}, web{address: func() (int, []byte) { return http.StatusOK, keys }})
	away := verifier(t, instanceidentity.Options{}, nil)
	broken := verifier(t, instanceidentity.Options{}, web{address: func() (int, []byte) { return http.StatusBadGateway, nil }})
	for name, tc := range map[string]struct {
		v     *instanceidentity.Verifier
		token string
		code  fault.Code
		says  string
	}{
		"keys of a file":      {offline, token(good, same), "", ""},
		"fetched keys":        {online, token(good, same), "", ""},
		"no way to Google":    {away, token(good, same), fault.Unavailable, "cannot be fetched now"},
		"Google has an error": {broken, token(good, same), fault.Unavailable, "cannot be fetched now"},
		"another signer":      {offline, token(stranger, same), fault.Unauthenticated, ""},
		"another audience":    {offline, token(good, func(c map[string]any) { c["aud"] = "coder" }), fault.Unauthenticated, "audience"},
		"two audiences":       {offline, token(good, func(c map[string]any) { c["aud"] = []string{"coder", "x"} }), fault.Unauthenticated, "audience"},
		"another issuer":      {offline, token(good, func(c map[string]any) { c["iss"] = "https://example.com" }), fault.Unauthenticated, "issuer"},
		"expired":             {offline, token(good, func(c map[string]any) { c["exp"] = now.Add(-2 * time.Minute).Unix() }), fault.Unauthenticated, "expired"},
		"without an end":      {offline, token(good, func(c map[string]any) { delete(c, "exp") }), fault.Unauthenticated, "an end"},
		"one more audience":   {offline, token(good, func(c map[string]any) { c["aud"] = []string{audience, "coder"} }), fault.Unauthenticated, "one audience"},
		"an old token":        {offline, token(good, func(c map[string]any) { c["iat"] = now.Add(-6 * time.Minute).Unix() }), fault.Unauthenticated, "older than"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := instanceidentity.ParseGoogle(tc.token)
			if err != nil {
				t.Fatal(err)
			}
			check(t, tc.v, p, tc.code, tc.says,
				instanceidentity.Instance{Auth: instanceidentity.Google, ID: "152986662232938449", Account: "my-project", At: now})
		})
	}
	for name, change := range map[string]func(map[string]any){
		"a user's token": func(c map[string]any) { delete(c, "google") },
		"another id": func(c map[string]any) {
			c["google"] = map[string]any{"compute_engine": map[string]any{"instance_id": "a", "project_id": "p"}}
		},
		"no time of issue": func(c map[string]any) { delete(c, "iat") },
	} {
		if _, err := instanceidentity.ParseGoogle(token(good, change)); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFiles checks that a file that cannot be used is named, and that what the package contains is usable.
func TestFiles(t *testing.T) {
	t.Parallel()
	if _, err := instanceidentity.New(instanceidentity.Options{}); err != nil {
		t.Fatal(err)
	}
	empty := writeFile(t, nil)
	broken := writeFile(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	for name, opts := range map[string]instanceidentity.Options{
		"--aws-identity-ca-file has no":                  {AWSCertificates: empty},
		"--aws-identity-ca-file cannot be":               {AWSCertificates: empty + "x"},
		"--azure-identity-ca-file has no":                {AzureCertificates: empty},
		"--azure-identity-ca-file has a":                 {AzureCertificates: broken},
		"--google-identity-keys-file has no keys":        {GoogleKeys: empty},
		"--google-identity-keys-file cannot be read: op": {GoogleKeys: empty + "x"},
	} {
		if _, err := instanceidentity.New(opts); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"instanceId":"i-01234567","accountId":"1","pendingTime":"2026-01-01T00:00:00Z"}`, "AAAA")
	f.Add("a.eyJpYXQiOjEsImdvb2dsZSI6eyJjb21wdXRlX2VuZ2luZSI6eyJpbnN0YW5jZV9pZCI6IjEiLCJwcm9qZWN0X2lkIjoicCJ9fX0.c", "MIIB")
	v, err := instanceidentity.New(instanceidentity.Options{
		Audience: audience, Client: &http.Client{Transport: web{}}, Now: func() time.Time { return now },
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, parse := range []func() (instanceidentity.Proof, error){
			func() (instanceidentity.Proof, error) { return instanceidentity.ParseAWS(a, b) },
			func() (instanceidentity.Proof, error) { return instanceidentity.ParseAzure(b) },
			func() (instanceidentity.Proof, error) { return instanceidentity.ParseGoogle(a) },
		} {
			p, err := parse()
			if err != nil {
				if fault.CodeOf(err) != fault.Invalid {
					t.Errorf("got %v", err)
				}
				continue
			}
			if c := p.Claim(); c.ID == "" || c.Account == "" || c.At.IsZero() {
				t.Errorf("claims %+v", c)
			}
			if _, err := v.Verify(t.Context(), p); err == nil {
				t.Errorf("%q %q: no cloud signed this", a, b)
			}
		}
	})
}
