package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestDistantHealthIsVerified checks that a health check of another host than the workspace's own verifies its certificate.
func TestDistantHealthIsVerified(t *testing.T) {
	t.Parallel()
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	app.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake that the check gives up
	app.StartTLS()
	t.Cleanup(app.Close)
	check := newHealthChecker()
	distant := check.distant.Transport.(*http.Transport)
	distant.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, app.Listener.Addr().String())
	}
	if check.ask(t.Context(), "https://example.com/", time.Minute) {
		t.Error("an untrusted certificate was accepted")
	}
	roots := x509.NewCertPool()
	roots.AddCert(app.Certificate())
	distant.TLSClientConfig = &tls.Config{RootCAs: roots}
	if !check.ask(t.Context(), "https://example.com/", time.Minute) {
		t.Error("a trusted certificate was refused")
	}
}
