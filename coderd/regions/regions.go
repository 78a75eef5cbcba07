// Package regions owns the region proxies: it creates, lists, changes and deletes them, accepts their connections, and
// reports to every server which of them are connected. The database is where servers learn of the proxies that are
// connected to others.
//
// It must not know the mesh: the Mesh interface gives it the keys that proxies admit.
package regions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/webdial"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// lifetime is how long a server counts as running after its last heartbeat, as in package replicas.
	lifetime = 15 * time.Second
	// lookEvery is how often the table is read although no change was announced: a killed server announces nothing.
	lookEvery = 5 * time.Second

	queryTimeout = 10 * time.Second
	checkTimeout = 5 * time.Second
	// pingInterval finds a proxy that has vanished within three seconds.
	pingInterval = time.Second
	// checks is how often a proxy's URL is asked, to find a balancer that leads to several processes in turns.
	checks = 4

	channel = "workspace_proxies"
)

// Keys reports which node keys are admitted: see mesh.KeyFollower.
type Keys interface {
	Next(ctx context.Context, limit int) (admitted, revoked []tailnet.PublicKey, more bool, err error)
	Close()
}

// Options configures a Service. All fields but WildcardHost are required.
type Options struct {
	// ID identifies this server.
	ID     uuid.UUID
	DB     *database.DB
	PubSub pubsub.PubSub
	Logger *slog.Logger
	// AccessURL and WildcardHost are where apps are opened.
	AccessURL    *url.URL
	WildcardHost string
	// FollowKeys returns the keys that a proxy admits.
	FollowKeys func() Keys
	// Alias returns what a proxy calls a user: see hostkeys.Keys.
	Alias func(proxy, user uuid.UUID) uuid.UUID
	// Recheck has the nodes of proxies looked at: their visas may have expired, or their tokens been replaced. The same
	// goroutine calls it.
	Recheck func(context.Context)
	// Changed receives the regions of the connected proxies at the beginning and whenever they may have changed. One
	// goroutine calls it.
	Changed func([]tailnet.RelayRegion)
}

// Service is safe for concurrent use. Call Start and Stop once each.
type Service struct {
	opts   Options
	log    *slog.Logger
	wake   notify.Wake
	cancel context.CancelFunc // nil before Start
	done   sync.WaitGroup
	// sources are what the policy of pages allows besides the server; nil before the first look.
	sources atomic.Pointer[string]

	mu      sync.Mutex
	stopped bool
	links   map[uuid.UUID]link // by connection
}

// link is a proxy's connection.
type link struct {
	proxy   uuid.UUID
	token   string // hash
	end     context.CancelCauseFunc
	recheck *notify.Set[uuid.UUID] // the users about whose visits and devices the proxy is to ask again
	stored  bool                   // the database names it
}

// New returns a service that accepts connections, and reports nothing until Start.
func New(opts Options) *Service {
	return &Service{opts: opts, log: opts.Logger, wake: notify.NewWake(), links: map[uuid.UUID]link{}}
}

// Start reports the regions until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	end := s.opts.PubSub.Subscribe(channel, func(string) { s.wake.Poke() })
	s.done.Go(func() {
		defer end()
		s.watch(ctx)
	})
}

// Stop ends the reports and all connections. It may be called without Start, and again.
func (s *Service) Stop() {
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Lock()
	s.stopped = true
	for _, l := range s.links {
		l.end(nil)
	}
	s.mu.Unlock()
	s.done.Wait()
}

// watch looks at the table until ctx ends.
func (s *Service) watch(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := s.look(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Warn("cannot look for region proxies, trying again", "err", err)
		}
		failing = err != nil
		select {
		case <-ticker.C:
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// look reports the connected proxies, and ends the connections of those that were deleted, got another token, or have a
// successor. While the database does not answer, everything stays.
func (s *Service) look(ctx context.Context) error {
	stored := s.stored() // before the database is asked: it must name them, or others in their place
	rows, err := s.rows(ctx)
	if err != nil {
		return err
	}
	var list []tailnet.RelayRegion
	var addresses []string
	tokens, current := map[uuid.UUID]string{}, map[uuid.UUID]uuid.UUID{}
	for _, row := range rows {
		p := row.WorkspaceProxy
		tokens[p.ID] = string(p.TokenHash)
		if p.ConnectionID != nil {
			current[p.ID] = *p.ConnectionID
		}
		if s.lost(p) { // the database did not answer when the connection ended
			s.disconnected(ctx, p, *p.ConnectionID)
			continue
		}
		if row.Connected && p.Apps {
			addresses = append(addresses, p.Url)
		}
		if row.Connected {
			list = append(list, tailnet.RelayRegion{
				ID: int(p.Region), Code: p.Name, Name: displayName(p), URL: p.Url, STUNPort: int(p.StunPort),
			})
		}
	}
	sources := sourcesOf(addresses)
	s.sources.Store(&sources)
	s.mu.Lock()
	for id, l := range s.links {
		switch {
		case tokens[l.proxy] != l.token:
			l.end(nil)
		case stored[id] && current[l.proxy] != id:
			l.end(errOther)
		}
	}
	s.mu.Unlock()
	s.opts.Changed(list)
	s.opts.Recheck(ctx)
	return nil
}

// stored returns the connections that the database was told of.
func (s *Service) stored() map[uuid.UUID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := map[uuid.UUID]bool{}
	for id, l := range s.links {
		stored[id] = l.stored
	}
	return stored
}

// lost reports whether a proxy counts as connected to this server, and is not.
func (s *Service) lost(p dbsqlc.WorkspaceProxy) bool {
	if p.ServerID == nil || *p.ServerID != s.opts.ID || p.ConnectionID == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.links[*p.ConnectionID]
	return !ok
}

func (s *Service) rows(ctx context.Context) ([]dbsqlc.ListWorkspaceProxiesRow, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := s.opts.DB.ListWorkspaceProxies(ctx, lifetime.Seconds())
	if err != nil {
		return nil, fmt.Errorf("list region proxies: %w", err)
	}
	return rows, nil
}

// coordinate serves a proxy's connection.
func (s *Service) coordinate(w http.ResponseWriter, r *http.Request) error {
	row, err := s.authenticate(r.Context(), secret.Token(r.Header.Get(sdk.ProxyTokenHeader)))
	if err != nil {
		return err
	}
	conn, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: region.MaxHello, PingInterval: pingInterval})
	if err != nil {
		s.log.Debug("region proxy not upgraded", "err", err)
		return nil
	}
	if err := s.serve(context.WithoutCancel(r.Context()), row, conn); err != nil {
		s.log.Warn("region proxy disconnected", "region", row.Name, "err", err)
		conn.Close(websock.StatusPolicy, err.Error())
		return nil
	}
	conn.Close(websock.StatusGoingAway,
		"the server is stopping, the token has changed, or another process serves the region")
	return nil
}

func (s *Service) authenticate(ctx context.Context, token secret.Token) (dbsqlc.WorkspaceProxy, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	unknown := fault.New(fault.Unauthenticated, "The token of the region proxy is not valid, or has been replaced").
		WithDetail("An owner can create a new one: coder wsproxy regenerate-token NAME")
	if !tokenForm().MatchString(token.Reveal()) {
		return dbsqlc.WorkspaceProxy{}, unknown
	}
	row, err := s.opts.DB.GetWorkspaceProxyByToken(ctx, token.Hash())
	if database.IsNotFound(err) {
		return row, unknown
	}
	if err != nil {
		return row, fault.New(fault.Unavailable, "The token of the region proxy cannot be checked now: %w", err)
	}
	return row, nil
}

// serve serves a connection until it ends. The error is what the proxy's operator must change, or nil.
func (s *Service) serve(ctx context.Context, row dbsqlc.WorkspaceProxy, conn *websock.Conn) error {
	hello, err := s.greet(ctx, conn)
	if err != nil {
		return err
	}
	ctx, done := conn.Drain(ctx)
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	id := uuid.New()
	recheck := notify.NewSet[uuid.UUID]()
	if !s.add(id, link{proxy: row.ID, token: string(row.TokenHash), end: cancel, recheck: recheck}) {
		return nil
	}
	defer s.remove(id)
	var telling sync.WaitGroup
	defer telling.Wait()
	defer cancel(nil)
	telling.Go(func() {
		for {
			select {
			case <-recheck.Wake:
			case <-ctx.Done():
				return
			}
			users := recheck.Take()
			if len(users) == 0 {
				continue // the proxy has heard of them
			}
			if err := conn.WriteJSON(ctx, s.rechecks(row.ID, users)); err != nil {
				cancel(nil) // a new connection asks about everything
				return
			}
		}
	})
	keys := s.opts.FollowKeys()
	defer keys.Close()
	// The keys go first: a node that learns of the region is admitted there.
	synced := false
	for {
		u, more, err := next(ctx, keys)
		if errors.Is(context.Cause(ctx), errOther) {
			s.dismiss(context.WithoutCancel(ctx), conn)
			return errOther
		}
		if err != nil {
			return nil
		}
		u.Synced = !more && !synced
		if err := conn.WriteJSON(ctx, u); err != nil {
			return nil
		}
		if !u.Synced {
			continue
		}
		synced = true
		if err := s.connected(ctx, row, hello, id); err != nil {
			return err
		}
		s.noteStored(id)
		defer s.disconnected(context.WithoutCancel(ctx), row, id)
	}
}

// dismiss revokes all keys at a proxy that another process has replaced: nodes that stayed would not meet those at the
// other one.
func (s *Service) dismiss(ctx context.Context, conn *websock.Conn) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	keys := s.opts.FollowKeys()
	defer keys.Close()
	for more := true; more; {
		var u region.Update
		var err error
		if u.Revoke, _, more, err = keys.Next(ctx, region.MaxKeys); err == nil {
			err = conn.WriteJSON(ctx, u)
		}
		if err != nil {
			return // it has ended, or forgets the keys later
		}
	}
	conn.Close(websock.StatusPolicy, errOther.Error())
}

// Recheck has the connected proxies ask about all visitors again, and about the devices of a user, or of all users if
// it is uuid.Nil. It does not block.
func (s *Service) Recheck(user uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		l.recheck.Add(user)
	}
}

// rechecks returns the message that has a proxy ask again.
func (s *Service) rechecks(proxy uuid.UUID, users []uuid.UUID) region.Update {
	u := region.Update{Recheck: true}
	if slices.Contains(users, uuid.Nil) || len(users) > region.MaxOwners {
		return u
	}
	for _, user := range users {
		u.Owners = append(u.Owners, s.opts.Alias(proxy, user))
	}
	return u
}

// add registers a connection, unless the service has been stopped. Stop waits until it is removed.
func (s *Service) add(id uuid.UUID, l link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.links[id] = l
	s.done.Add(1)
	return true
}

// noteStored notes that the database knows a connection.
func (s *Service) noteStored(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.links[id]; ok {
		l.stored = true
		s.links[id] = l
	}
}

func (s *Service) remove(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, id)
	s.done.Done()
}

func next(ctx context.Context, keys Keys) (u region.Update, more bool, err error) {
	u.Admit, u.Revoke, more, err = keys.Next(ctx, region.MaxKeys)
	return u, more, err
}

// greet reads what a proxy announces, and checks that its URL leads to it.
func (s *Service) greet(ctx context.Context, conn *websock.Conn) (region.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	data, err := conn.Read(ctx)
	if err != nil {
		return region.Hello{}, fmt.Errorf("wait for hello: %w", err)
	}
	hello, err := region.DecodeHello(data)
	if err != nil {
		return region.Hello{}, err
	}
	base, err := url.Parse(hello.URL)
	if err != nil {
		return region.Hello{}, err
	}
	var asking sync.WaitGroup
	var errs [checks]error
	for i := range errs {
		asking.Go(func() { errs[i] = check(ctx, base, hello.Check) })
	}
	asking.Wait()
	switch err := errors.Join(errs[:]...); {
	case errors.Is(err, errOther):
		return region.Hello{}, errOther
	case err != nil:
		s.log.Debug("check of a region proxy's URL", "url", hello.URL, "err", err)
		return region.Hello{}, fmt.Errorf("%s does not lead to this proxy", hello.URL)
	}
	return hello, nil
}

// errOther is the refusal of a proxy whose URL leads to another one, at least at times. Nodes that meet at a region's
// relay must all find the same process. The close frame that carries it has room for 123 bytes.
var errOther = errors.New("the access URL leads to another region proxy: one process serves a region, others wait until it leads to them")

// check asks the proxy at base who it is, over a connection of its own. It returns errOther if another proxy answers.
// What the answer is otherwise is not told: the proxy chose the URL.
func check(ctx context.Context, base *url.URL, want string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(region.CheckPath).String(), nil)
	if err != nil {
		return err
	}
	transport := webdial.Transport(nil)
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, region.CheckLength+1))
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusOK && string(got) == want:
		return nil
	case resp.StatusCode == http.StatusOK && checkForm().Match(got):
		return errOther
	}
	return fmt.Errorf("the answer is not this proxy's (%s)", resp.Status)
}

func (s *Service) connected(ctx context.Context, row dbsqlc.WorkspaceProxy, hello region.Hello, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	n, err := s.opts.DB.ConnectWorkspaceProxy(ctx, dbsqlc.ConnectWorkspaceProxyParams{
		ID: row.ID, TokenHash: row.TokenHash, Url: hello.URL, StunPort: int32(hello.STUNPort), Version: hello.Version,
		ServerID: &s.opts.ID, ConnectionID: &id,
		Apps: hello.Apps, WildcardHost: hello.WildcardHost, SshAddress: hello.SSHAddress,
		WireguardAddress: hello.WireGuardAddress,
	})
	if err != nil {
		return fmt.Errorf("store the connection: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Unauthenticated, "the token has been replaced")
	}
	s.log.Info("region proxy connected", "region", row.Name, "url", hello.URL)
	return nil
}

// disconnected removes a connection. If the database does not answer now, look repeats it.
func (s *Service) disconnected(ctx context.Context, row dbsqlc.WorkspaceProxy, id uuid.UUID) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := s.opts.DB.DisconnectWorkspaceProxy(ctx, dbsqlc.DisconnectWorkspaceProxyParams{
		ID: row.ID, ConnectionID: &id,
	}); err != nil {
		s.log.Warn("cannot record that a region proxy disconnected", "region", row.Name, "err", err)
	}
}

// Routes registers the routes.
func (s *Service) Routes(mux *httpapi.Mux) { s.routes(mux) }
