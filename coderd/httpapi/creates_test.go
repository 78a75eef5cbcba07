package httpapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// keyed is a mux whose routes create things, in memory.
type keyed struct {
	*httpapi.Mux
	mu      sync.Mutex
	used    map[[sha256.Size]byte]httpapi.Used
	created int
	fails   error // the answer to the next creation, which happens nevertheless
	away    error // of the lookup of keys
}

func newKeyed(t *testing.T) *keyed {
	t.Helper()
	k := &keyed{used: map[[sha256.Size]byte]httpapi.Used{}}
	k.Mux = httpapi.NewMux(httpapi.Options{
		Logger: slog.New(slog.DiscardHandler), Authenticate: authenticate,
		Keys: func(_ context.Context, _ uuid.UUID, key [sha256.Size]byte) (*httpapi.Used, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			used, ok := k.used[key]
			if !ok || k.away != nil {
				return nil, k.away
			}
			return &used, nil
		},
	})
	create := func(w http.ResponseWriter, r *http.Request) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		id := uuid.New()
		if key := httpapi.KeyOf(r.Context()); key != nil {
			sum, err := key.Sum()
			if err != nil {
				return err
			}
			if _, ok := k.used[key.Hash]; ok {
				return httpapi.KeyUsed()
			}
			k.used[key.Hash] = httpapi.Used{Request: sum, Created: id}
		}
		k.created++
		if err := k.fails; err != nil {
			k.fails = nil
			return err
		}
		return httpapi.Write(w, http.StatusCreated, id)
	}
	read := func(w http.ResponseWriter, r *http.Request) error {
		var v map[string]any
		if err := httpapi.Read(w, r, &v); err != nil {
			return err
		}
		return create(w, r)
	}
	k.Handle("POST /api/v2/things", rbac.SignedIn, read, httpapi.Creates("things/{created}"))
	k.Handle("POST /api/v2/bodiless", rbac.SignedIn, create, httpapi.Creates("things/{created}"))
	k.Handle("POST /api/v2/secrets", rbac.SignedIn, create, httpapi.CreatesSecret("The secret"))
	k.Handle("POST /api/v2/plain", rbac.SignedIn, create)
	k.Handle("GET /api/v2/things/{thing}", rbac.SignedIn, func(w http.ResponseWriter, r *http.Request) error {
		return httpapi.Write(w, http.StatusOK, r.PathValue("thing"))
	})
	return k
}

// post sends a request with a key.
func (k *keyed) post(target, key, body string) *httptest.ResponseRecorder {
	return do(k, "POST", "/api/v2/"+target, func(r *http.Request) {
		withToken(r)
		r.Header.Set(sdk.KeyHeader, key)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	})
}

// TestKeyedRequests checks which requests are repetitions of others, and how each way to fail is answered.
func TestKeyedRequests(t *testing.T) {
	t.Parallel()
	const key, body = "0123456789abcdef", `{"name":"a"}`
	t.Run("same", func(t *testing.T) {
		k := newKeyed(t)
		first := k.post("things", key, body)
		for range 2 {
			again := k.post("things", key, body)
			if again.Code != http.StatusCreated || again.Body.String() != first.Body.String() || again.Header().Get("Idempotency-Replayed") != "true" || k.created != 1 {
				t.Errorf("repeated: %d %s %v, %d created", again.Code, again.Body, again.Header(), k.created)
			}
		}
		if first.Code != http.StatusCreated || first.Header().Get("Idempotency-Replayed") != "" {
			t.Errorf("first: %d %s %v", first.Code, first.Body, first.Header())
		}
	})
	t.Run("other", func(t *testing.T) {
		k := newKeyed(t)
		k.post("things", key, body)
		for _, other := range []*httptest.ResponseRecorder{k.post("things", key, body+" "), k.post("things?x=1", key, body), k.post("bodiless", key, body), k.post("secrets", key, body)} {
			if got := decode(t, other); other.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Message, "belongs to another request") || !strings.Contains(got.Detail, "a key of its own") {
				t.Errorf("another request: %d %+v", other.Code, got)
			}
		}
		if k.post("plain", key, body); k.created != 2 { // this route does not know keys
			t.Errorf("%d created", k.created)
		}
	})
	t.Run("lost commit", func(t *testing.T) {
		k := newKeyed(t)
		k.fails = fmt.Errorf("commit: %w", io.ErrUnexpectedEOF)
		if got := k.post("things", key, body); got.Code != http.StatusCreated || k.created != 1 {
			t.Errorf("got %d %s, %d created", got.Code, got.Body, k.created)
		}
		k.fails = fmt.Errorf("commit: %w", io.ErrUnexpectedEOF)
		if got := k.post("secrets", "another-key-of-a-request", ""); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "The secret was created by this request before") {
			t.Errorf("a secret: %d %s", got.Code, got.Body)
		}
	})
	t.Run("database away", func(t *testing.T) {
		k := newKeyed(t)
		k.away = fault.New(fault.Unavailable, "The database is not reachable.")
		if got := k.post("things", key, body); got.Code != http.StatusServiceUnavailable || k.created != 0 {
			t.Errorf("got %d %s, %d created", got.Code, got.Body, k.created)
		}
	})
	t.Run("keys", func(t *testing.T) {
		k := newKeyed(t)
		for _, bad := range []string{"short", strings.Repeat("k", 256), "0123456789 abcdef", "0123456789abcde\u00e9"} {
			if got := k.post("things", bad, body); got.Code != http.StatusBadRequest || k.created != 0 || !strings.Contains(got.Body.String(), "16 to 255 visible ASCII characters") {
				t.Errorf("%q: %d %s", bad, got.Code, got.Body)
			}
		}
	})
}

// TestKeyedBodies attacks what a request's hash needs: no body that does not arrive may hold a transaction, and with it a connection to the database.
func TestKeyedBodies(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	k := newKeyed(t)
	s := httptest.NewServer(httpapi.BoundBodies(k, timeout))
	defer s.Close()
	head := func(path, length string) string {
		return "POST /api/v2/" + path + " HTTP/1.1\r\nHost: x\r\nCoder-Session-Token: " + goodToken + "\r\nContent-Type: application/json\r\nIdempotency-Key: 0123456789abcdef\r\n" + length + "\r\n\r\n"
	}
	for name, request := range map[string]string{
		"announced":           head("bodiless", "Content-Length: 10") + "{",
		"announced and large": head("bodiless", "Content-Length: 2000000") + "{",
		"in chunks":           head("bodiless", "Transfer-Encoding: chunked") + "1\r\n{\r\n",
		"read":                head("things", "Transfer-Encoding: chunked") + "1\r\n{\r\n",
	} {
		answer, err := io.ReadAll(dial(t, s, request)) // until the server closes the connection
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || k.created != 0 {
			t.Errorf("%s: %q, %v, %d created", name, answer, err, k.created)
		}
	}
}
