package appaddr_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/appaddr"
)

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"": true, "localhost": true, "LOCALHOST.": true, "app.localhost": true, "127.0.0.1": true, "127.8.8.8": true, "::1": true, "0.0.0.0": true, "::": true,
		"::ffff:127.0.0.1": true, "169.254.169.254": false, "10.0.0.1": false, "localhost.example.com": false, "notlocalhost": false, "2001:db8::1": false,
		"127.0.0.1.example.com": false, "0x7f.1": false,
	} {
		if got := appaddr.IsLoopback(host); got != want {
			t.Errorf("%q: got %t", host, got)
		}
	}
}

func TestPort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint16{
		"http://localhost": 80, "https://localhost/x": 443, "http://localhost:8080": 8080, "http://[::1]:65535": 65535,
		"http://localhost:1": 1, "http://localhost:0": 0, "http://localhost:65536": 0,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := appaddr.Port(u); ok != (want != 0) || ok && got != want {
			t.Errorf("%s: got %d, %t", text, got, ok)
		}
	}
}

// TestTransport checks that an app answers whatever its certificate says and wherever it redirects, unless its header is too large.
func TestTransport(t *testing.T) {
	t.Parallel()
	var asked string // by SNI
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.TLS.ServerName
		if r.URL.Path == "/large" {
			w.Header().Set("X-Large", strings.Repeat("x", 300<<10))
		}
		http.Redirect(w, r, "https://elsewhere.example.com/", http.StatusFound)
	}))
	app.StartTLS()
	t.Cleanup(app.Close)
	var hosts []string
	transport := appaddr.Transport(func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		hosts = append(hosts, host)
		if port != 8443 {
			t.Errorf("dialled port %d", port)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", app.Listener.Addr().String())
	})
	t.Cleanup(transport.CloseIdleConnections)
	ask := func(path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://agent:8443"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	if resp, err := ask("/"); err != nil || resp.StatusCode != http.StatusFound || asked != "localhost" || hosts[0] != "agent" {
		t.Errorf("got %v, %v; asked for %q at %v", resp, err, asked, hosts)
	}
	if resp, err := ask("/large"); err == nil {
		t.Errorf("a header of 300 kB: got %d", resp.StatusCode)
	}
}
