// Package extauth links users with their accounts at other services, mainly git hosts: it signs them in with OAuth 2,
// stores the tokens encrypted, renews them, and finds the token for a URL. It knows nothing of workspaces and agents:
// callers must check who may ask for a user's token.
//
//	browser ── GET /external-auth/{id}/callback ──▶ provider's sign-in page
//	        ◀─ the same with ?code&state ── provider;  server ── code, PKCE verifier ──▶ provider: tokens
//
// The state is signed and names the user, the session and the provider; the PKCE verifier stays in the browser's
// cookie. A code is therefore valid only in the browser and session that requested it. Providers with a device flow
// (RFC 8628) need no way back: see device.go.
package extauth

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// askTimeout bounds one request to a provider.
	askTimeout = 10 * time.Second
	// maxAsking bounds the concurrent requests to providers.
	maxAsking = 16
	// maxRefreshing bounds how many of them are made while a database row is locked.
	maxRefreshing = 2
	// queueTime is how long a token must remain valid to be used for a build that may have to wait.
	queueTime = 10 * time.Minute
	// workTimeout bounds all work for one token request: waiting, refreshing and validating.
	workTimeout = 30 * time.Second
)

// Options configures a Service. Every field is required except Providers, SignIn and HTTP.
type Options struct {
	DB     *database.DB
	Logger *slog.Logger
	// Keys encrypt tokens at rest.
	Keys *keyring.Ring
	// Signer signs the state of a sign-in.
	Signer *signed.Signer
	// AccessURL is the URL at which browsers reach the server.
	AccessURL *url.URL
	// Providers are those that ParseEnv returned.
	Providers []Provider
	// SignIn are providers at which users sign in to this server. The service keeps and renews their tokens as it does
	// those of links, but users cannot link, list or unlink them, and programs in workspaces cannot ask for them by id.
	// Only their ID and Renew are used.
	SignIn []Provider
	// HTTP sends requests to providers. If nil, a separate client with the environment's proxies is used.
	HTTP *http.Client
}

// Service manages the links. Safe for concurrent use.
type Service struct {
	opts   Options
	log    *slog.Logger
	client *http.Client
	work   singleflight.Group // by user and provider

	asking     chan struct{} // a slot per request to a provider
	refreshing chan struct{} // a slot per refresh

	heeds map[string]func(context.Context, uuid.UUID, *oauth2.Token) // by provider; set before the first renewal

	mu      sync.Mutex
	renewed map[linkKey]renewal // tokens that a provider has issued but that are not in the database yet
}

// New returns the service. It has no background work.
func New(opts Options) *Service {
	s := &Service{opts: opts, log: opts.Logger, client: opts.HTTP, asking: make(chan struct{}, maxAsking), refreshing: make(chan struct{}, maxRefreshing), renewed: map[linkKey]renewal{}, heeds: map[string]func(context.Context, uuid.UUID, *oauth2.Token){}}
	if s.client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = askTimeout
		// Contexts bound requests. A timeout of the client would keep a goroutine for answers that the oauth2 library
		// does not close.
		s.client = &http.Client{Transport: bounded{transport}}
	}
	return s
}

// OnRenewed registers what is called with each new token that a provider has issued for a renewal, after the token is
// stored. It must be called before the first request; heed may block, and its context has a deadline.
func (s *Service) OnRenewed(provider string, heed func(ctx context.Context, user uuid.UUID, got *oauth2.Token)) {
	s.heeds[provider] = heed
}

// Routes registers the routes with which users manage their own links.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/external-auth", rbac.Needs(rbac.Read, rbac.ExternalAuth), s.list)
	mux.Handle("GET /api/v2/external-auth/{externalauth}", rbac.Needs(rbac.Read, rbac.ExternalAuth), s.get)
	mux.Handle("DELETE /api/v2/external-auth/{externalauth}", rbac.Needs(rbac.Delete, rbac.ExternalAuth), s.unlink,
		audit.On(audit.Delete, audit.ExternalAuth))
	mux.Handle("GET /api/v2/external-auth/{externalauth}/device", rbac.Needs(rbac.Update, rbac.ExternalAuth),
		s.beginDevice)
	mux.Handle("POST /api/v2/external-auth/{externalauth}/device", rbac.Needs(rbac.Update, rbac.ExternalAuth), s.finishDevice,
		audit.On(audit.Create, audit.ExternalAuth))
	mux.Handle("GET /external-auth/{externalauth}/callback", rbac.Needs(rbac.Update, rbac.ExternalAuth), s.callback)
}

// Close stores the tokens that could not be stored before, if the database accepts them now, and closes idle
// connections to providers.
func (s *Service) Close() {
	s.storeRenewed()
	s.client.CloseIdleConnections()
}

// PageURL returns the dashboard's page where a user links an account with a provider.
func (s *Service) PageURL(provider string) string {
	return s.opts.AccessURL.JoinPath("external-auth", provider).String()
}

func (s *Service) callbackURL(p *Provider) *url.URL {
	return s.opts.AccessURL.JoinPath("external-auth", p.ID, "callback")
}

// provider returns the provider that users link accounts with, by its id, or nil.
func (s *Service) provider(id string) *Provider { return find(s.opts.Providers, id) }

// keeper returns the provider with an id, of those that users link accounts with and those that they sign in at, or
// nil.
func (s *Service) keeper(id string) *Provider {
	if p := s.provider(id); p != nil {
		return p
	}
	return find(s.opts.SignIn, id)
}

func find(all []Provider, id string) *Provider {
	for i := range all {
		if all[i].ID == id {
			return &all[i]
		}
	}
	return nil
}

func (s *Service) config(p *Provider) *oauth2.Config {
	style := oauth2.AuthStyleAutoDetect
	if kind, known := kinds[p.Type]; known {
		style = kind.style
	}
	if p.ClientSecret == "" { // there is none to send in a header
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret.Reveal(), Scopes: p.Scopes,
		RedirectURL: s.callbackURL(p).String(),
		Endpoint:    oauth2.Endpoint{AuthURL: p.AuthURL, TokenURL: p.TokenURL, AuthStyle: style},
	}
}

// Ask waits for a slot and runs f, which must send its requests to a provider with the given context: it carries the
// client (oauth2.HTTPClient) and a deadline. Ask returns f's error, or the fault Unavailable if too many requests wait.
func (s *Service) Ask(ctx context.Context, f func(context.Context) error) error {
	leave, err := enter(ctx, s.asking)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, s.client), askTimeout)
	defer cancel()
	return f(ctx)
}

// enter waits for a slot. On success the caller must call leave.
func enter(ctx context.Context, slots chan struct{}) (leave func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "Too many requests to other services are waiting: %w", ctx.Err()).
			WithDetail("Try again in a moment.")
	}
}

// maxBody bounds what is read of a provider's response, in bytes.
const maxBody = 1 << 20

// bounded is a transport whose responses end after maxBody: libraries read them whole.
type bounded struct{ *http.Transport }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxBody), resp.Body}
	}
	return resp, err
}
