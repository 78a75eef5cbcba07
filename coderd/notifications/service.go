package notifications

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

// Defaults of the server's flags.
const (
	DefaultAttempts = 5
	DefaultTimeout  = time.Minute
)

// Config says how messages are delivered. The zero value delivers to inboxes only.
type Config struct {
	// NoInbox turns the inbox off.
	NoInbox bool
	// Method is the external method of events that have none of their own: smtp or webhook. Empty means smtp. It is not
	// used unless it is configured.
	Method string
	// Mail sends mail. Nil: smtp is not available.
	Mail Mail
	// Webhook is the URL that messages are posted to. Nil: webhook is not available.
	Webhook *url.URL
	// MaxAttempts is how often the delivery of a message is tried. 0 means DefaultAttempts.
	MaxAttempts int
	// Timeout bounds one attempt. 0 means DefaultTimeout.
	Timeout time.Duration
}

// Check returns a fault unless the configuration is valid.
func (c Config) Check() error {
	switch {
	case c.Method != "" && c.Method != MethodSMTP && c.Method != MethodWebhook:
		return fault.New(fault.Invalid, "--notifications-method %q must be smtp or webhook", c.Method)
	case c.Method == MethodWebhook && c.Webhook == nil:
		return fault.New(fault.Invalid,
			"--notifications-method is webhook, and --notifications-webhook-endpoint is missing")
	case c.MaxAttempts < 0:
		return fault.New(fault.Invalid, "--notifications-max-send-attempts cannot be %d", c.MaxAttempts)
	case c.Timeout < 0:
		return fault.New(fault.Invalid, "--notifications-dispatch-timeout cannot be %s", c.Timeout)
	case c.Webhook != nil && (c.Webhook.Scheme != "http" && c.Webhook.Scheme != "https" || c.Webhook.Host == ""):
		return fault.New(fault.Invalid, "--notifications-webhook-endpoint must start with http:// or https://")
	}
	return nil
}

// available lists the external methods that are configured.
func (c Config) available() []string {
	methods := []string{}
	if c.Mail != nil {
		methods = append(methods, MethodSMTP)
	}
	if c.Webhook != nil {
		methods = append(methods, MethodWebhook)
	}
	return methods
}

// external returns the default method if it is available, or "".
func (c Config) external() string {
	method := c.Method
	if method == "" {
		method = MethodSMTP
	}
	if !slices.Contains(c.available(), method) {
		return ""
	}
	return method
}

// Recorder returns the recorder of events for this configuration.
func (c Config) Recorder() *Recorder { return NewRecorder(!c.NoInbox, c.available(), c.external()) }

// Accounts finds users.
type Accounts interface {
	// Target returns the user in the path if the actor may perform the action on the resource of that user.
	Target(r *http.Request, action rbac.Action, resource rbac.Resource) (dbsqlc.User, error)
}

// Options configure a Service. All fields are required except Config.
type Options struct {
	DB        *database.DB
	PubSub    pubsub.PubSub
	Logger    *slog.Logger
	AccessURL *url.URL
	Accounts  Accounts
	Recorder  *Recorder
	Config    Config
}

// Service delivers messages and serves inboxes, preferences and settings. Safe for concurrent use.
type Service struct {
	opts  Options
	log   *slog.Logger
	lanes []*lane

	life    context.Context // ends with Stop
	stop    context.CancelFunc
	cancel  func() // ends the subscription; nil before Start
	running sync.WaitGroup

	reported atomic.Int64 // the beginning of the last week whose failed builds this server has reported, in Unix seconds
}

// New returns a service that is not started.
func New(opts Options) *Service {
	if opts.Config.MaxAttempts == 0 {
		opts.Config.MaxAttempts = DefaultAttempts
	}
	if opts.Config.Timeout == 0 {
		opts.Config.Timeout = DefaultTimeout
	}
	s := &Service{opts: opts, log: opts.Logger}
	s.life, s.stop = context.WithCancel(context.Background())
	s.lanes = append(s.lanes, &lane{method: MethodInbox, wake: notify.NewWake()})
	if c := opts.Config; c.Mail != nil {
		s.lanes = append(s.lanes, &lane{method: MethodSMTP, wake: notify.NewWake(), send: s.sendMail})
	}
	if c := opts.Config; c.Webhook != nil {
		hook := newHook(c.Webhook)
		s.lanes = append(s.lanes, &lane{
			method: MethodWebhook, wake: notify.NewWake(), send: hook.send, close: hook.client.Close,
		})
	}
	return s
}

// Start starts the deliveries. It does not block.
func (s *Service) Start() {
	s.cancel = s.opts.PubSub.Subscribe("notifications", func(string) {
		for _, l := range s.lanes {
			l.wake.Poke()
		}
	})
	for _, l := range s.lanes {
		s.running.Go(func() { s.run(l) })
	}
	s.running.Go(s.reports)
}

// Stop ends streams and deliveries, and waits for the deliveries: those that have begun get a moment. It is idempotent,
// and works before Start.
func (s *Service) Stop() {
	s.stop()
	if s.cancel != nil {
		s.cancel()
	}
	s.running.Wait()
	for _, l := range s.lanes {
		if l.close != nil {
			l.close()
		}
	}
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) {
	const v2 = "/api/v2/notifications"
	manage := rbac.Needs(rbac.Update, rbac.Deployment)
	mux.Handle("GET "+v2+"/settings", rbac.SignedIn, s.getSettings)
	mux.Handle("PUT "+v2+"/settings", manage, s.putSettings, audit.On(audit.Write, audit.NotificationsSettings))
	mux.Handle("GET "+v2+"/dispatch-methods", rbac.SignedIn, s.dispatchMethods)
	mux.Handle("GET "+v2+"/templates/system", rbac.SignedIn, s.systemTemplates)
	mux.Handle("GET "+v2+"/templates/custom", rbac.SignedIn, s.customTemplates)
	mux.Handle("PUT "+v2+"/templates/{template}/method", manage, s.putMethod,
		audit.On(audit.Write, audit.NotificationTemplate))
	mux.Handle("POST "+v2+"/test", manage, s.test, audit.Exempt("it only sends a test to the caller"))
	mux.Handle("POST "+v2+"/custom", rbac.SignedIn, s.custom, audit.Exempt("it only sends a message to the caller"))

	// An inbox is always the caller's own.
	read, update := rbac.Needs(rbac.Read, rbac.Notification), rbac.Needs(rbac.Update, rbac.Notification)
	mux.Handle("GET "+v2+"/inbox", read, s.listInbox)
	mux.Handle("GET "+v2+"/inbox/watch", read, s.watchInbox)
	mux.Handle("PUT "+v2+"/inbox/{notification}/read-status", update, s.putReadStatus,
		audit.Exempt("whether the caller has read a notification concerns only them"))
	mux.Handle("PUT "+v2+"/inbox/mark-all-as-read", update, s.markAllRead,
		audit.Exempt("whether the caller has read a notification concerns only them"))

	const preferences = "/api/v2/users/{user}/notifications/preferences"
	mux.Handle("GET "+preferences, rbac.Needs(rbac.Read, rbac.User), s.getPreferences)
	mux.Handle("PUT "+preferences, rbac.Needs(rbac.Update, rbac.User), s.putPreferences,
		audit.On(audit.Write, audit.User))
}

// own returns the caller, who may do the action to their own notifications: a token can be limited to less.
func own(ctx context.Context, action rbac.Action) (uuid.UUID, error) {
	actor := httpapi.ActorFrom(ctx)
	return actor.UserID, actor.May(action, rbac.Of(rbac.Notification, actor.UserID))
}

// template returns the template with the id in a path, or the fault NotFound.
func template(text string) (Template, error) {
	id, err := uuid.Parse(text)
	if err == nil {
		if t, ok := find(id); ok {
			return t, nil
		}
	}
	return Template{}, fault.New(fault.NotFound, "The notification template %q does not exist.", shorten(text, 64)).
		WithDetail("GET /api/v2/notifications/templates/system lists the templates.")
}
