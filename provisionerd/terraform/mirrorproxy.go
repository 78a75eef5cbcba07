package terraform

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

// mirrorServe is the part of a registryProxy for network mirrors, which Terraform reaches by https only. It has a
// certificate of its own.
type mirrorServe struct {
	*registryProxy
	http    *http.Server
	address string
	// certificate is what init must trust, as PEM.
	certificate []byte
}

// newMirrorServe starts to serve p's mirrors.
func newMirrorServe(p *registryProxy) (*mirrorServe, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("serve mirrors: %w", err)
	}
	loopback := net.IPv4(127, 0, 0, 1)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().
				Add(24 * time.Hour), IPAddresses: []net.IP{loopback},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("serve mirrors: %w", err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		return nil, fmt.Errorf("serve mirrors: %w", err)
	}
	m := &mirrorServe{registryProxy: p, address: listener.Addr().String(),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	m.http = &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	p.serving.Go(func() { _ = m.http.Serve(listener) }) // until close
	return m, nil
}

// url returns the URL of a mirror.
func (m *mirrorServe) url(number int) string {
	return "https://" + m.address + "/" + m.secret + "/mirror/" + strconv.Itoa(number) + "/"
}

var mirrorPath = lazyregexp.New(`^(` + segment + `/){3}` + segment + `\.json$`)

// ServeHTTP implements http.Handler.
func (m *mirrorServe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := m.asked(w, r)
	if !ok {
		return
	}
	word, rest, _ := strings.Cut(rest, "/")
	digits, rest, _ := strings.Cut(rest, "/")
	number, err := strconv.Atoi(digits)
	if word != "mirror" || err != nil || number < 0 || number >= len(m.networkMirrors) ||
		!mirrorPath().MatchString(rest) {
		http.NotFound(w, r)
		return
	}
	base, err := url.Parse(m.networkMirrors[number])
	if err != nil || base.Scheme != "https" {
		http.Error(w, "the mirror has no https URL", http.StatusBadGateway)
		return
	}
	ctx, cancel := m.bounded(r)
	defer cancel()
	answer, body, err := m.get(ctx, base.JoinPath(rest), m.tokens[hostName(base.Host)])
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case answer.StatusCode != http.StatusOK:
		http.Error(w, http.StatusText(answer.StatusCode), answer.StatusCode)
	default:
		sendJSON(w, body, func(doc map[string]any) {
			archives, _ := doc["archives"].(map[string]any) // an index has none
			for _, archive := range archives {
				if one, ok := archive.(map[string]any); ok {
					absolute(one, "url", answer.Request.URL)
				}
			}
		})
	}
}

// authorityFiles are where systems keep the certificates of authorities in one file.
var authorityFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// trusted returns the machine's authorities and the mirror's certificate, as PEM. file is SSL_CERT_FILE, or empty.
func (m *mirrorServe) trusted(file string) []byte {
	files := authorityFiles
	if file != "" {
		files = []string{file}
	}
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil {
			return slices.Concat(text, []byte("\n"), m.certificate)
		}
	}
	return m.certificate // programs add the certificates of the usual folders
}
