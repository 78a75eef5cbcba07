package region_test

import (
	"net/http"
	"testing"
)

// TestForeignHosts: a page whose name leads to the proxy's address reaches nothing there.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for _, path := range []string{"/", "/healthz", "/derp", "/derp/latency-check", "/@ann/dev.main/apps/code/", "/latency-check", "/api/v2/workspaceagents/x/pty"} {
		for host, want := range map[string]bool{"evil.example:" + w.proxy.Port(): false, w.proxy.Host: true, "127.0.0.1:" + w.proxy.Port(): true} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+w.proxy.Port()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if served := resp.StatusCode != http.StatusMisdirectedRequest; served != want {
				t.Errorf("%s of %s: got %d", path, host, resp.StatusCode)
			}
		}
	}
}
