//go:build linux

package region_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/region"
)

func TestLatencyCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for name, at := range map[string]*url.URL{"server": w.URL, "proxy": w.proxy} {
		status, header, body := w.get(at.JoinPath(region.LatencyPath).String())
		if status != http.StatusOK || body != "OK" || header.Get("Access-Control-Allow-Origin") != "*" || header.Get("Timing-Allow-Origin") != "*" ||
			header.Get("Cache-Control") != "no-store" || header.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
			t.Errorf("%s: %d %q %v", name, status, body, header)
		}
	}
}

// Pages may connect to the regions that are there, and to nothing else.
func TestPagesConnectToRegions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	policy := func() string {
		_, header, _ := w.get(w.URL.JoinPath("/workspaces").String())
		for directive := range strings.SplitSeq(header.Get("Content-Security-Policy"), ";") {
			if connect, ok := strings.CutPrefix(strings.TrimSpace(directive), "connect-src "); ok {
				return connect
			}
		}
		return ""
	}
	testwait.Until(t, "the region in the policy", func() error { return testwait.Equal(policy(), "'self' "+w.proxy.String()+" ws://"+w.proxy.Host) })
	if err := w.As("olga").DeleteWorkspaceProxy(t.Context(), "eu"); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the policy without it", func() error { return testwait.Equal(policy(), "'self'") })
}

// get returns an answer to someone who is not signed in.
func (w *world) get(address string) (int, http.Header, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, address, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Origin", "http://other.example")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}
