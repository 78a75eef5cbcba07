package e2e_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/certs/pebbletest"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestACME: a server gets its certificate from an authority that asks it over HTTPS, and has the same one after a restart.
func TestACME(t *testing.T) {
	port := testport.Free()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	authority := pebbletest.Start(t, 1, port) // nothing listens on port 1
	d := startServer(t,
		"--tls-address", addr, "--tls-acme-domain", "coder.example.com", "--tls-acme-email", "ada@example.com",
		"--tls-acme-directory-url", authority.DirectoryURL, "--tls-acme-ca-file", authority.CAFile)
	serial := func() (number string) {
		testwait.Until(t, "the server serves HTTPS with a certificate of the authority", func() error {
			client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
				DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authority.Roots, ServerName: "coder.example.com"},
			}}
			resp, err := client.Get("https://" + addr + "/healthz")
			if err != nil {
				return err
			}
			resp.Body.Close()
			number = resp.TLS.PeerCertificates[0].SerialNumber.String()
			return testwait.Equal(resp.StatusCode, http.StatusOK)
		})
		return number
	}
	first := serial()
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if again := serial(); again != first {
		t.Errorf("after a restart the server has the certificate %s, want %s", again, first)
	}
}
