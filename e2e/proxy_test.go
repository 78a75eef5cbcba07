package e2e_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// selfSigned writes a certificate of its own authority for 127.0.0.1, localhost and more addresses, and its key.
func selfSigned(t *testing.T, dir string, more ...net.IP) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1)}, more...), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// agentTemplate is a template for a workspace on the provisioner's host whose agent gets more environment than from the process starter,
// in the way that a template names its image's authorities.
const agentTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    quiet       = true
    command     = "mkdir -p $DIR && cd $DIR && printf %s \"$INIT\" >agent.sh && env -i PATH=\"$PATH\" HOME=$DIR CODER_AGENT_TOKEN=$TOKEN SSL_CERT_FILE=$CERT CURL_CA_BUNDLE=$CERT setsid sh agent.sh </dev/null >agent.log 2>&1 &"
    environment = {
      DIR   = "@DIR@/workspace"
      CERT  = "@CERT@"
      INIT  = coder_agent.main.init_script
      TOKEN = coder_agent.main.token
    }
  }
}
`

// TestTLS: the server serves HTTPS itself, with a certificate that only configured clients trust. Everything works, including relayed
// traffic.
func TestTLS(t *testing.T) {
	t.Parallel()
	d := prepare(t)
	cert, key := selfSigned(t, d.dir)
	authorities, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	d.base = "https://127.0.0.1:" + d.port
	d.web.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	d.args = []string{
		"--tls-address", "127.0.0.1:" + d.port, "--tls-cert-file", cert, "--tls-key-file", key, "--http-address=", "--provisioner-isolation", "none",
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	login := d.firstLogin()
	if _, stderr, err := d.try(login...); err == nil || !strings.Contains(stderr, "certificate") {
		t.Errorf("login without trust in the certificate: got %v, %q; want a refusal that names it", err, stderr)
	}
	d.extra = append(d.extra, "CODER_CLIENT_TLS_CA_FILE="+cert)
	d.coder(login...)

	template := filepath.Join(d.dir, "own")
	if err := os.Mkdir(template, 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("@DIR@", d.dir, "@CERT@", cert).Replace(agentTemplate)
	if err := os.WriteFile(filepath.Join(template, "main.tf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "own", "-d", template, "-y")
	d.coder("create", "dev", "-t", "own", "-y")
	if out := d.coder("ssh", "dev", "--", "echo over https"); out != "over https\n" {
		t.Errorf("ssh: got %q", out)
	}
	if out := d.coder("ssh", "dev", "--disable-direct-connections", "--", "echo relayed over https"); out != "relayed over https\n" {
		t.Errorf("ssh through the relay: got %q", out)
	}
	if out := d.coder("ping", "-n", "1", "--disable-direct-connections", "dev"); strings.Contains(out, "p2p") {
		t.Errorf("ping through the relay: got %q", out)
	}
}

// picky is a reverse proxy that supports websockets and no other upgrade.
type picky struct {
	to                 *httputil.ReverseProxy
	websockets, others atomic.Int64 // upgrades that were passed, and refused
}

func newPicky(t *testing.T, to string) *picky {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	return &picky{to: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.SetXForwarded(); r.Out.Host = r.In.Host },
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // the server behind it starts later
	}}
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch upgrade := r.Header.Get("Upgrade"); {
	case upgrade == "":
	case strings.EqualFold(upgrade, "websocket"):
		p.websockets.Add(1)
	default:
		p.others.Add(1)
		// Like nginx with an upgrade that it is not configured for, forward the request without it.
		r.Header.Del("Upgrade")
		r.Header.Del("Connection")
	}
	p.to.ServeHTTP(w, r)
}

// TestProxyThatPassesOnlyWebsockets checks that behind a proxy that passes only websocket upgrades, relayed traffic works
// automatically.
func TestProxyThatPassesOnlyWebsockets(t *testing.T) {
	t.Parallel()
	d := prepare(t)
	proxy := newPicky(t, "http://127.0.0.1:"+d.port)
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	d.base = front.URL
	d.begin()
	d.pushProcess()
	d.coder("create", "dev", "-t", "process", "-y")

	relayed := func(args ...string) string { return d.coder(append(args, "--disable-direct-connections")...) }
	if out := relayed("ping", "-n", "3", "dev"); strings.Contains(out, "p2p") || !strings.Contains(out, "pong") {
		t.Errorf("ping: got %q, want relayed answers", out)
	}
	if out, _, err := d.try("ssh", "--disable-direct-connections", "dev", "--", "echo behind a proxy"); err != nil || out != "behind a proxy\n" {
		t.Errorf("ssh: got %q (%v)", out, err)
	}
	sent := make([]byte, 4<<20)
	rand.Read(sent)
	back := d.command(t.Context(), "ssh", "--disable-direct-connections", "dev", "--", "cat")
	back.Stdin = bytes.NewReader(sent)
	got, err := back.Output()
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("4 MiB and back: got %d bytes (%v), equal %v", len(got), err, bytes.Equal(got, sent))
	}
	if proxy.others.Load() == 0 || proxy.websockets.Load() == 0 {
		t.Errorf("the proxy refused %d upgrades and passed %d websockets, want some of both", proxy.others.Load(), proxy.websockets.Load())
	}
}
