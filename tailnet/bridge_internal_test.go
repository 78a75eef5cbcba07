package tailnet

import (
	"net/http"
	"net/url"
	"testing"
)

// TestBridgeServesNobodyElse: other users of the machine can reach the bridge's port.
func TestBridgeServesNobodyElse(t *testing.T) {
	t.Parallel()
	b, err := newBridge(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for host, want := range map[string]int{
		"":                         http.StatusForbidden,
		"bridge.invalid":           http.StatusForbidden,
		"x" + b.host:               http.StatusForbidden,
		b.host:                     http.StatusBadGateway, // it tries, and there is no relay
		b.host + ":80":             http.StatusBadGateway,
		"localhost":                http.StatusForbidden,
		b.listener.Addr().String(): http.StatusForbidden,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.listener.Addr().String()+"/derp", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Upgrade", "DERP")
		req.Header.Set("Connection", "Upgrade")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q: got %s, want %d", host, resp.Status, want)
		}
	}
}
