package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestRequestLimit checks who is counted together, what the headers say, and that a minute later all is forgotten.
func TestRequestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		users := map[string]uuid.UUID{"ann": uuid.New(), "bob": uuid.New()}
		mux := httpapi.NewMux(httpapi.Options{
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), RequestsPerMinute: 3,
			Authenticate: func(r *http.Request) (rbac.Actor, error) {
				if id, ok := users[r.Header.Get("Coder-Session-Token")]; ok {
					return rbac.Actor{UserID: id}, nil
				}
				return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
			},
		})
		fine := func(w http.ResponseWriter, _ *http.Request) error { return httpapi.Write(w, http.StatusOK, "fine") }
		mux.Handle("GET /api/v2/things", rbac.SignedIn, fine)
		mux.Handle("GET /api/v2/open", rbac.Public, fine)
		mux.Handle("GET /api/v2/machines", rbac.Public, fine, httpapi.Uncounted("they return all at once"))
		mux.Handle("GET /bin/{name}", rbac.Public, fine)
		ask := func(path, token, addr string, status, left int) {
			t.Helper()
			w := do(mux, "GET", path, func(r *http.Request) {
				r.Header.Set("Coder-Session-Token", token)
				r.RemoteAddr = addr
			})
			h := w.Header()
			if w.Code != status {
				t.Errorf("%s by %s from %s: got %d, want %d", path, token, addr, w.Code, status)
			}
			if left < 0 {
				if h.Get("X-RateLimit-Limit") != "" {
					t.Errorf("%s by %s from %s: is counted: %v", path, token, addr, h)
				}
				return
			}
			if h.Get("X-RateLimit-Limit") != "3" || h.Get("X-RateLimit-Remaining") != strconv.Itoa(left) || h.Get("X-RateLimit-Reset") == "" {
				t.Errorf("%s by %s from %s: got %v, want %d left", path, token, addr, h, left)
			}
			if refused := h.Get("Retry-After") != ""; refused != (status == http.StatusTooManyRequests) {
				t.Errorf("%s by %s from %s: got %d with Retry-After %q", path, token, addr, w.Code, h.Get("Retry-After"))
			}
		}
		const home, office, v6, neighbor = "192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1"
		for left := range 3 {
			ask("/api/v2/things", "ann", home, 200, 2-left)
		}
		ask("/api/v2/things", "ann", office, 429, 0) // the user, wherever she is
		ask("/api/v2/things", "bob", office, 200, 2)
		ask("/api/v2/open", "", home, 200, 2)
		ask("/api/v2/things", "stolen", home, 401, 1) // a wrong token counts for the address
		ask("/api/v2/open", "ann", home, 200, 0)
		ask("/api/v2/things", "stolen", home, 429, 0)
		ask("/api/v2/things", "bob", home, 200, 1) // users of that address are not refused
		ask("/api/v2/open", "", v6, 200, 2)
		ask("/api/v2/open", "", neighbor, 200, 1)
		for range 5 {
			ask("/api/v2/machines", "", home, 200, -1)
			ask("/bin/coder", "", home, 200, -1)
		}
		time.Sleep(59 * time.Second)
		ask("/api/v2/things", "ann", home, 429, 0)
		time.Sleep(time.Second)
		ask("/api/v2/things", "ann", home, 200, 2)
		ask("/api/v2/open", "", home, 200, 2)
	})
}
