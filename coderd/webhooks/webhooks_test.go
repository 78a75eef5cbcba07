package webhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/webhooks"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// world is a server whose events a test delivers itself, and a receiver.
type world struct {
	*coderdtest.Server
	receiver *httptest.Server

	mu     sync.Mutex
	got    []message // guarded by mu: what was accepted
	answer func(sdk.LifecycleEvent) int
}

// message is what the receiver accepted.
type message struct {
	header http.Header
	body   []byte
	sdk.LifecycleEvent
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{answer: func(sdk.LifecycleEvent) int { return http.StatusNoContent }}
	w.Server = coderdtest.New(t, func(o *coderd.Options) { o.WebhookNetworks = loopback })
	w.receiver = httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(w.receiver.Close)
	return w
}

func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	m := message{header: r.Header}
	m.body, _ = io.ReadAll(r.Body)
	_ = json.Unmarshal(m.body, &m.LifecycleEvent)
	w.mu.Lock()
	defer w.mu.Unlock()
	status := w.answer(m.LifecycleEvent)
	if status < 300 {
		w.got = append(w.got, m)
	}
	rw.Header().Set("Location", "/elsewhere")
	rw.WriteHeader(status)
	if status >= 300 {
		fmt.Fprintf(rw, "answer %d", status)
	}
}

// answers makes the receiver answer with a status.
func (w *world) answers(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = func(sdk.LifecycleEvent) int { return status }
}

// deliver delivers what is due, and returns what the receiver has accepted since the last call.
func (w *world) deliver() []message {
	w.T.Helper()
	if err := w.Webhooks.Deliver(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	return w.taken()
}

func (w *world) taken() []message {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

func types(all []message) []string {
	out := []string{}
	for _, m := range all {
		out = append(out, m.Type)
	}
	return out
}

// add adds a webhook that gets some types of events.
func (w *world) add(name string, events ...string) sdk.CreateWebhookResponse {
	w.T.Helper()
	made, err := w.As("olga").CreateWebhook(w.T.Context(), sdk.CreateWebhookRequest{Name: name, URL: w.receiver.URL + "/hidden?token=s3cr3t", Events: events})
	if err != nil {
		w.T.Fatal(err)
	}
	return made
}

func (w *world) deliveries(id uuid.UUID) []sdk.WebhookDelivery {
	w.T.Helper()
	all, err := w.As("olga").WebhookDeliveries(w.T.Context(), id, 100, 0)
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}

// due makes every delivery due that waits for another attempt.
func (w *world) due() {
	w.Exec(`UPDATE webhook_deliveries SET next_at = now() WHERE status = 'pending'`)
}

// another returns the deliveries of another server on the database.
func (w *world) another(allowed []netip.Prefix) *webhooks.Service {
	w.T.Helper()
	s := webhooks.New(webhooks.Options{
		DB: w.DB, PubSub: w.PubSub, Logger: slog.New(slog.DiscardHandler), Keys: w.States, AccessURL: w.URL, Authenticate: w.Users.Authenticate, Allowed: allowed,
	})
	w.T.Cleanup(s.Stop)
	return s
}

// event writes an event as the triggers do.
func (w *world) event(kind string, subject uuid.UUID, data string) {
	w.Exec(`SELECT lifecycle_event($1, split_part($1, '.', 1), $2, NULL, NULL, $3::jsonb)`, kind, subject, data)
}
