// Package coderdtest is the harness of the server's tests: a whole server as coderd.New wires it, with its own
// PostgreSQL database, users by role, clients for each, templates, workspaces, builds and agents, and a provisioner
// that does what the test tells it.
//
//	s := coderdtest.New(t)
//	template := s.Template("docker", nil)
//	ws, agent := s.Running("ann", "dev", template.ID)
//	_, err := s.As("bob").Workspace(t.Context(), ws.ID) // not found
//
// New answers requests and hands out jobs, without background work. Start runs everything that `coder server` runs,
// including the mesh.
//
// It is for black-box tests (package foo_test), because it imports every service.
package coderdtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Patience bounds waits that a correct program never uses up.
const Patience = testwait.Patience

// PSK lets external provisioners join.
const PSK = secret.Token("the pre-shared key")

// SetupCode lets clients create the first user.
const SetupCode = secret.Token("the code for the first user")

// roles lists the roles of users that tests know by name. All other users are members.
var roles = map[string][]string{"tom": {rbac.RoleTemplateAdmin}, "olga": {rbac.RoleOwner}}

// Rows are the rows of one test's database, for tests that create a service themselves.
type Rows struct {
	T  testing.TB
	DB *database.DB
	// Org is the default organization.
	Org uuid.UUID
	// Archive is the content of source archives created from now on.
	Archive []byte

	mu       sync.Mutex // guards the following
	users    map[string]uuid.UUID
	sessions map[string]secret.Token
}

// NewRows returns the rows of a new database.
func NewRows(t testing.TB) *Rows {
	t.Helper()
	return rowsOf(t, dbtest.New(t))
}

func rowsOf(t testing.TB, db *database.DB) *Rows {
	t.Helper()
	org, err := db.GetDefaultOrganization(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &Rows{T: t, DB: db, Org: org.ID, users: map[string]uuid.UUID{}, sessions: map[string]secret.Token{}}
}

// Server is a server of one test. It ends with the test.
type Server struct {
	*coderd.Server
	*Rows
	Log *slog.Logger
	URL *url.URL
	// States holds the keys that the server encrypts with.
	States *keyring.Ring
	// Queries counts the database queries of requests.
	Queries *Queries
	// Evaluate returns the forms of templates. If nil, every form is unknown.
	Evaluate func(templates.Question) (templates.Answer, error)

	log    *log
	daemon func() *Daemon
}

// New creates a server that answers requests and hands out jobs. Nothing else runs: no schedule, no retention, no mesh.
func New(t testing.TB, edit ...func(*coderd.Options)) *Server {
	t.Helper()
	s, listener := assemble(t, edit)
	if err := s.Jobs.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewUnstartedServer(s.Handler)
	api.Listener.Close()
	api.Listener = listener
	api.Start()
	t.Cleanup(func() {
		s.stop()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		api.Close()
	})
	return s
}

// Start creates a server that runs as `coder server` does.
func Start(t testing.TB, edit ...func(*coderd.Options)) *Server {
	t.Helper()
	s, _ := assemble(t, edit)
	t.Cleanup(s.stop)
	if err := s.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func assemble(t testing.TB, edit []func(*coderd.Options)) (*Server, net.Listener) {
	t.Helper()
	s := &Server{States: Keyring(t), Queries: &Queries{}, log: &log{}}
	s.daemon = sync.OnceValue(s.startDaemon)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Log = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.URL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	opts := coderd.Options{
		Logger: s.Log, DB: traced(t, dbtest.New(t), s.Queries), AccessURL: s.URL, HTTP: listener,
		STUNAddress: "off", CacheDir: t.TempDir(), StateDir: t.TempDir(), ProvisionerPSK: PSK, SetupCode: SetupCode,
		TrustedHosts: []string{"example.com"} /* httptest's */, States: s.States, StrictAudit: true,
		Evaluate: func(_ context.Context, q templates.Question) (templates.Answer, error) {
			if s.Evaluate == nil {
				return templates.Answer{Unknown: true}, nil
			}
			return s.Evaluate(q)
		},
	}
	for _, edit := range edit {
		edit(&opts)
	}
	s.Rows = rowsOf(t, opts.DB)
	if s.Server, err = coderd.New(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	return s, listener
}

// Counted returns db with all its queries counted.
func Counted(t testing.TB, db *database.DB) (*database.DB, *Queries) {
	t.Helper()
	q := &Queries{all: true}
	return traced(t, db, q), q
}

func traced(t testing.TB, db *database.DB, q *Queries) *database.DB {
	t.Helper()
	config := db.Pool.Config()
	config.ConnConfig.Tracer = q
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &database.DB{Queries: dbsqlc.New(pool), Pool: pool}
}

func (s *Server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		s.T.Errorf("stop: %v", err)
	}
}

// Keyring returns a ring with its own key.
func Keyring(t testing.TB) *keyring.Ring {
	t.Helper()
	key := make([]byte, 32)
	rand.Read(key)
	ring, err := keyring.Parse(base64.StdEncoding.EncodeToString(key))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// Exec runs SQL.
func (s *Rows) Exec(sql string, args ...any) {
	s.T.Helper()
	if _, err := s.DB.Pool.Exec(context.WithoutCancel(s.T.Context()), sql, args...); err != nil {
		s.T.Fatalf("%s: %v", sql, err)
	}
}

// User returns the id of a user, and creates the user if necessary: tom is a template admin, olga an owner of the
// deployment, and all others are members. They have no password.
func (s *Rows) User(name string) uuid.UUID {
	s.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.users[name]
	if ok {
		return id
	}
	row, err := s.DB.GetUserByName(s.T.Context(), name)
	id = row.ID
	if database.IsNotFound(err) {
		id, err = uuid.New(), nil
		s.Exec(`INSERT INTO users (id, username, email, roles) VALUES ($1, $2, $2 || '@example.com', $3)`, id, name, append([]string{}, roles[name]...))
		s.Exec(`INSERT INTO organization_members (organization_id, user_id) SELECT id, $1 FROM organizations WHERE is_default`, id)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	s.users[name] = id
	return id
}

// Session creates a session for a user, which ends after a week without use.
func (s *Rows) Session(user string) secret.Token {
	s.T.Helper()
	id, half := rand.Text()[:10], rand.Text()[:22]
	s.Exec(`INSERT INTO api_keys (id, user_id, secret_hash, kind, lifetime_seconds, expires_at) VALUES ($1, $2, $3, 'session', 604800, now() + interval '7 days')`,
		id, s.User(user), secret.Token(half).Hash())
	return secret.Token(id + "-" + half)
}

// Token returns the token that As uses, for headers and cookies; "" for "".
func (s *Rows) Token(user string) string {
	s.T.Helper()
	if user == "" {
		return ""
	}
	s.mu.Lock()
	token, ok := s.sessions[user]
	s.mu.Unlock()
	if !ok {
		token = s.Session(user)
		s.mu.Lock()
		s.sessions[user] = token
		s.mu.Unlock()
	}
	return token.Reveal()
}

// As returns a client for a user, always with the same session.
func (s *Server) As(user string) *sdk.Client {
	s.T.Helper()
	return s.With(secret.Token(s.Token(user)))
}

// With returns a client with a session, or without one if token is empty.
func (s *Server) With(token secret.Token) *sdk.Client {
	c := sdk.New(s.URL, token, sdk.Options{})
	s.T.Cleanup(c.HTTP().CloseIdleConnections)
	return c
}

// Serve serves the routes of a test's own service to the users of the database. It returns the address.
func (s *Rows) Serve(service interface{ Routes(*httpapi.Mux) }) *url.URL {
	s.T.Helper()
	logger := slog.New(slog.DiscardHandler)
	mux := httpapi.NewMux(httpapi.Options{Logger: logger, Authenticate: users.New(users.Options{
		DB: s.DB, Logger: logger,
	}).Authenticate})
	service.Routes(mux)
	server := httptest.NewServer(mux)
	s.T.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	u, err := url.Parse(server.URL)
	if err != nil {
		s.T.Fatal(err)
	}
	return u
}

// Logged returns what was written to Log.
func (s *Server) Logged() string { return s.log.String() }

type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Queries counts the queries of requests. Only Counted also counts the server's own queries.
type Queries struct {
	all bool
	n   atomic.Int64
}

// Count returns the number of queries so far.
func (q *Queries) Count() int { return int(q.n.Load()) }

// TraceQueryStart implements pgx.QueryTracer.
func (q *Queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if q.all || httpapi.RequestID(ctx) != "" {
		q.n.Add(1)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*Queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
