package daemon_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
)

// TestPrivateHosts checks that a web page that gives its own name the address of a loopback listener reads nothing there.
func TestPrivateHosts(t *testing.T) {
	t.Parallel()
	m, err := daemon.ServeMetrics("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	for host, want := range map[string]int{
		"127.0.0.1": http.StatusOK, "localhost:2112": http.StatusOK, "[::1]:2112": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "evil.example:2112": http.StatusMisdirectedRequest, "127.0.0.1.evil.example": http.StatusMisdirectedRequest,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.Addr.String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, answer.Status, want)
		}
	}
}
