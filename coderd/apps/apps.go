// Package apps decides who may open services of a workspace in a browser, and through which address: it is the server's
// Judge of package appproxy, and answers the same questions of region proxies, and theirs about terminals. It also owns
// the sharing of ports.
//
// A token is for one app and one place where apps are served: the servers, or one region proxy. None of them works at
// another.
package apps

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/regions"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memo"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/region"
)

// Options configure the service. All fields are required unless they say otherwise.
type Options struct {
	DB        *database.DB
	Logger    *slog.Logger
	Signer    *signed.Signer
	AccessURL *url.URL
	// WildcardHost is the pattern of the apps' hosts: "*.apps.example.com", with a port if it is not the scheme's
	// default. Empty means none.
	WildcardHost string
	// NoPaths refuses apps by path.
	NoPaths bool

	Accounts Accounts
	Agents   Agents
	Mesh     Mesh

	// Connections receives the visits of apps, for the connection log. Nil means that they are not recorded.
	Connections *audit.Connections
	Regions     Regions
}

// Accounts identify visitors. Their errors are faults, Unauthenticated for a session that does not exist or has ended.
type Accounts interface {
	Authenticate(*http.Request) (rbac.Actor, error)
	AuthenticateToken(context.Context, secret.Token) (rbac.Actor, error)
	// Holder returns the current holder of a key.
	Holder(ctx context.Context, keyID string) (rbac.Actor, error)
}

// Agents know which agents may be reached.
type Agents interface {
	// Admitted returns the given agents that run.
	Admitted(ctx context.Context, agents ...uuid.UUID) ([]uuid.UUID, error)
	// MayConnect returns a fault unless a user may open a terminal of an agent.
	MayConnect(ctx context.Context, actor rbac.Actor, agent uuid.UUID) error
}

// Mesh reaches agents.
type Mesh interface {
	// DialAgent opens a connection to a port of an agent. Its errors are faults.
	DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
}

// Regions are the region proxies.
type Regions interface {
	// Authenticate returns the proxy with a token, or the fault Unauthenticated.
	Authenticate(ctx context.Context, token secret.Token) (regions.Proxy, error)
	// Sites returns where connected proxies serve apps.
	Sites(ctx context.Context) ([]regions.Site, error)
	// Grant lets a proxy's node be introduced to an agent for a while.
	Grant(ctx context.Context, proxy regions.Proxy, node, agent uuid.UUID, lifetime time.Duration) error
}

// Service judges visits of apps. Safe for concurrent use.
type Service struct {
	opts  Options
	log   *slog.Logger
	hosts appproxy.Hosts
	proxy *appproxy.Handler

	places  *memo.Cache[appproxy.Place, found]
	holders *memo.Cache[string, rbac.Actor]
	touched *memo.Cache[uuid.UUID, struct{}] // workspaces whose use was recorded

	recorded recorder

	mu     sync.Mutex
	visits map[*visit]struct{} // guarded by mu: requests that are being served
	closed bool                // guarded by mu
}

// New returns the service. It panics if appproxy.ParseWildcard refuses the WildcardHost.
func New(opts Options) *Service {
	s := &Service{
		opts: opts, log: opts.Logger, hosts: appproxy.NewHosts(opts.AccessURL, opts.WildcardHost),
		places: remember[appproxy.Place, found](placeFresh), holders: remember[string, rbac.Actor](holderFresh), touched: remember[uuid.UUID, struct{}](touchEvery),
		visits: map[*visit]struct{}{},
	}
	s.recorded = recorder{to: opts.Connections, sessions: map[sessionKey]*session{}}
	s.proxy = appproxy.New(appproxy.Options{
		Logger: opts.Logger, Judge: s, URL: opts.AccessURL, Dashboard: opts.AccessURL, WildcardHost: opts.WildcardHost,
		NoPaths: opts.NoPaths,
	})
	return s
}

func remember[K comparable, V any](fresh time.Duration) *memo.Cache[K, V] {
	return memo.New[K, V](memo.Options{Fresh: fresh, Timeout: askTimeout, Max: maxRemembered})
}

// Routes registers what the dashboard asks about apps, the sharing of ports, and the route that grants a token for an
// app.
func (s *Service) Routes(mux *httpapi.Mux) {
	mux.Handle("GET /api/v2/applications/host", rbac.AnyToken, func(w http.ResponseWriter, _ *http.Request) error {
		return httpapi.Write(w, http.StatusOK, sdk.ApplicationsHost{Host: s.opts.WildcardHost})
	})
	share := rbac.Needs(rbac.Share, rbac.Workspace)
	mux.Handle("GET /api/v2/workspaces/{workspace}/port-share", rbac.Needs(rbac.Read, rbac.Workspace), s.listPortShares)
	mux.Handle("POST /api/v2/workspaces/{workspace}/port-share", share, s.sharePort,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("DELETE /api/v2/workspaces/{workspace}/port-share", share, s.deletePortShare,
		audit.On(audit.Write, audit.Workspace))
	mux.Handle("GET "+appproxy.AuthPath, rbac.Public, s.authorize) // sends visitors who are not signed in to the sign-in page
	mux.Handle("POST /api/v2/applications/reconnecting-pty-signed-token", rbac.Needs(rbac.Connect, rbac.Agent),
		s.terminalToken, audit.Exempt("the connection log records terminals"))
	uncounted := httpapi.Uncounted("a region proxy asks for all of its visitors")
	mux.Handle("POST "+region.VisitPath, rbac.Public, s.visitRegion, uncounted,
		audit.Exempt("the connection log records visits"))
	mux.Handle("POST "+region.RedeemPath, rbac.Public, s.redeemRegion, uncounted,
		audit.Exempt("the connection log records visits"))
}

// Handler serves apps, and passes every other request to next.
func (s *Service) Handler(next http.Handler) http.Handler { return s.proxy.Wrap(next) }

// Stop ends every request in progress and refuses new ones. It does not wait, and may be called again.
func (s *Service) Stop() {
	s.mu.Lock()
	s.closed = true
	for v := range s.visits {
		v.cancel()
	}
	s.mu.Unlock()
	s.recorded.stop()
	s.proxy.Close()
}

// visit is a request in progress.
type visit struct {
	visitor visitor
	app     target
	cancel  context.CancelFunc
}

// enter registers a visit, whose context ends when the visitor loses the right to it. It then checks the session once
// more: a Recheck may have run just before this visit was registered.
func (s *Service) enter(ctx context.Context, who visitor, a target) (context.Context, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	v := &visit{who, a, cancel}
	leave := func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.visits, v)
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.visits[v] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		cancel()
		return nil, nil, fault.New(fault.Unavailable, "The server is stopping.").WithDetail("Try again in a moment.")
	}
	if err := s.still(ctx, v, s.holder); err != nil {
		leave()
		return nil, nil, err
	}
	return ctx, leave, nil
}

// still returns a fault unless the visitor may go on with a visit. holder returns the current holder of their key.
func (s *Service) still(ctx context.Context, v *visit, holder func(context.Context, string) (rbac.Actor, error)) error {
	who := v.visitor
	if who.actor.KeyID != "" {
		var err error
		if who.actor, err = holder(ctx, who.actor.KeyID); err != nil {
			return err
		}
	}
	f, err := s.resolve(ctx, v.app.asked)
	if err != nil {
		return err
	}
	if !f.ok || f.target.workspace != v.app.workspace || !who.may(f.target) {
		return fault.New(fault.NotFound, "This app does not exist, or you do not have access to it.")
	}
	return nil
}

// Recheck ends open requests that visitors may no longer make: those of a user, or of all users and of visitors without
// a session if userID is uuid.Nil. It blocks for a query for each session with an open request, and for each app that
// they are for.
func (s *Service) Recheck(ctx context.Context, userID uuid.UUID) {
	s.holders.Forget(func(_ string, a rbac.Actor) bool { return userID == uuid.Nil || a.UserID == userID })
	s.places.Forget(func(appproxy.Place, found) bool { return true })
	s.mu.Lock()
	var doubted []*visit
	for v := range s.visits {
		if userID == uuid.Nil || v.visitor.actor.UserID == userID {
			doubted = append(doubted, v)
		}
	}
	s.mu.Unlock()
	for _, v := range doubted {
		if s.still(ctx, v, s.opts.Accounts.Holder) != nil { // also if the database cannot answer: the visitor can retry
			v.cancel()
		}
	}
}

const (
	// placeFresh is how long the agent and app of an address are cached. A page asks for a hundred files at once.
	placeFresh = 5 * time.Second
	// holderFresh is how long a session is trusted. Recheck is called when one ends; holderFresh is the limit if that
	// message is lost.
	holderFresh = 15 * time.Second
	// touchEvery is how often the use of a workspace is recorded.
	touchEvery = time.Minute
	// askTimeout bounds a question to the database, and maxRemembered the number of cached answers of each kind.
	askTimeout    = 10 * time.Second
	maxRemembered = 4096
)
