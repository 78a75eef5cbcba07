package webhooks

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

// MaxWebhooks is how many webhooks a deployment can have.
const MaxWebhooks = 50

// Channels on which the database announces events without a number, and numbered ones with their deliveries.
const (
	channelNew      = "lifecycle"
	channelNumbered = "lifecycle_numbered"
)

// Options configure a Service. All fields are required except Allowed.
type Options struct {
	DB            *database.DB
	PubSub        pubsub.PubSub
	Logger        *slog.Logger
	Keys          *keyring.Ring
	AccessURL     *url.URL
	Notifications *notifications.Recorder
	// Authenticate authenticates the user of an open stream again.
	Authenticate func(*http.Request) (rbac.Actor, error)
	// Allowed are networks that webhooks may be in although they are reserved for the server's host or network.
	Allowed []netip.Prefix
}

// Service delivers events and serves webhooks and the stream. Safe for concurrent use.
type Service struct {
	opts   Options
	log    *slog.Logger
	guard  *webhook.Guard
	client *webhook.Client
	wake   notify.Wake

	life    context.Context // ends with Stop
	stop    context.CancelFunc
	cancel  []func() // end the subscriptions
	running sync.WaitGroup

	mu      sync.Mutex
	busy    map[uuid.UUID]struct{} // guarded by mu: webhooks that this server delivers to now
	readers map[uuid.UUID]int      // guarded by mu: open streams, by user
	changes notify.Broadcast       // guarded by mu: events were numbered
}

// New returns a service that is not started.
func New(opts Options) *Service {
	s := &Service{opts: opts, log: opts.Logger, guard: webhook.NewGuard(opts.Allowed), wake: notify.NewWake(), busy: map[uuid.UUID]struct{}{}, readers: map[uuid.UUID]int{}}
	s.client = webhook.NewClient(s.guard)
	s.life, s.stop = context.WithCancel(context.Background())
	s.cancel = append(s.cancel, opts.PubSub.Subscribe(channelNumbered, func(string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changes.Notify()
		s.wake.Poke()
	}))
	return s
}

// Start starts the deliveries. It does not block.
func (s *Service) Start() {
	s.cancel = append(s.cancel, s.opts.PubSub.Subscribe(channelNew, func(string) { s.wake.Poke() }))
	s.running.Go(s.run)
}

// Stop ends streams and deliveries, and waits for the deliveries: those that have begun get a moment. It is idempotent,
// and works before Start.
func (s *Service) Stop() {
	s.stop()
	for _, cancel := range s.cancel {
		cancel()
	}
	s.running.Wait()
	s.client.Close()
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const hooks, one = "/api/v2/webhooks", "/api/v2/webhooks/{webhook}"
	manage := rbac.Needs(rbac.Update, rbac.Deployment)
	mux.Handle("GET "+hooks, manage, s.list)
	mux.Handle("POST "+hooks, manage, s.create, audit.On(audit.Create, audit.Webhook),
		httpapi.CreatesSecret("The webhook"))
	mux.Handle("PATCH "+one, manage, s.update, audit.On(audit.Write, audit.Webhook))
	mux.Handle("DELETE "+one, manage, s.remove, audit.On(audit.Delete, audit.Webhook))
	mux.Handle("POST "+one+"/secret", manage, s.replaceSecret, audit.On(audit.Write, audit.Webhook))
	mux.Handle("GET "+one+"/deliveries", manage, s.deliveries)
	mux.Handle("POST "+one+"/test", manage, s.test,
		audit.Exempt("it only sends a test to a webhook that owners have set up"))
	mux.Handle("POST "+one+"/replay", manage, s.replay, audit.On(audit.Write, audit.Webhook))
	mux.Handle("GET /api/v2/events/lifecycle", rbac.AnyToken, s.stream) // permission is checked for each event
}

// pause returns how long to wait after a failed attempt, or false after the last.
func pause(attempt int32) (time.Duration, bool) {
	if attempt < 1 || int(attempt) > len(schedule) {
		return 0, false
	}
	return schedule[attempt-1], true
}
