package mesh_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/mesh"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coderd/seal"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/tailnet"
	"github.com/codermesh/codermesh/tailnet/tailnettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// psk is the deployment's pre-shared key for external provisioners.
const psk = secret.Token("the deployment's key")

// world is a Service with its HTTP routes on a loopback socket. A user's name is also their token: "ann" owns every agent that
// agent creates. The users in refused may no longer connect.
type world struct {
	*mesh.Service
	url *url.URL

	mu      sync.Mutex
	agents  map[string]uuid.UUID    // by token
	owners  map[uuid.UUID]uuid.UUID // of agents
	refused map[uuid.UUID]bool      // users
	ended   map[string]bool         // sessions
	// paths returns the paths that agents report.
	paths func(ctx context.Context, agent uuid.UUID) ([]tailnet.PeerStatus, error)
}

var (
	ann = uuid.MustParse("00000000-0000-4000-8000-00000000000a")
	bob = uuid.MustParse("00000000-0000-4000-8000-00000000000b")
)

func (w *world) authenticate(r *http.Request) (rbac.Actor, error) {
	token, _ := httpapi.Token(r)
	switch token.Reveal() {
	case "ann", "ann again":
		return rbac.Actor{UserID: ann, Username: "ann", KeyID: token.Reveal()}, nil
	case "bob":
		return rbac.Actor{UserID: bob, Username: "bob"}, nil
	case "tom":
		return rbac.Actor{UserID: uuid.New(), Username: "tom", Roles: []string{rbac.RoleTemplateAdmin}}, nil
	}
	if token.Reveal() == "olga" {
		return rbac.Actor{UserID: uuid.New(), Username: "olga", Roles: []string{rbac.RoleOwner}}, nil
	}
	return rbac.Actor{}, fault.New(fault.Unauthenticated, "You are not signed in.")
}

// accounts, ourAgents, noKeys and noQueue implement the interfaces that the service depends on.
type (
	accounts  struct{ *world }
	ourAgents struct{ *world }
	noKeys    struct{}
	noQueue   struct{}
)

func (w accounts) Authenticate(r *http.Request) (rbac.Actor, error) { return w.authenticate(r) }

func (w accounts) Session(_ context.Context, session string, user uuid.UUID) (rbac.Actor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.refused[user]:
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "Your account is suspended.")
	case w.ended[session]:
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "The session has ended.")
	}
	return rbac.Actor{UserID: user, Username: "somebody"}, nil
}

func (w ourAgents) AuthenticateAgent(_ context.Context, token secret.Token) (mesh.Agent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, ok := w.agents[token.Reveal()]
	if !ok {
		return mesh.Agent{}, fault.New(fault.Unauthenticated, "This agent token is not valid.")
	}
	return mesh.Agent{ID: id, Name: token.Reveal()}, nil
}

// ByName ignores who owns the agent.
func (w ourAgents) ByName(_ context.Context, _ uuid.UUID, name string) (uuid.UUID, error) {
	return uuid.Parse(name)
}

func (w ourAgents) MayConnect(_ context.Context, user, agent uuid.UUID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if owner, ok := w.owners[agent]; !ok || owner != user {
		return rbac.NotFound(rbac.Agent)
	}
	return nil
}

func (w ourAgents) Owners(context.Context, ...uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.owners), nil
}

func (w ourAgents) Paths(ctx context.Context, agent uuid.UUID) ([]tailnet.PeerStatus, error) {
	w.mu.Lock()
	tell := w.paths
	w.mu.Unlock()
	if tell == nil {
		return nil, fault.New(fault.Unavailable, "the agent does not answer")
	}
	return tell(ctx, agent)
}

func (noKeys) Authenticate(context.Context, secret.Token) (mesh.ProvisionerKey, error) {
	return mesh.ProvisionerKey{}, fault.New(fault.Unauthenticated, "This key does not exist.")
}

func (noKeys) Existing(context.Context, []uuid.UUID) ([]uuid.UUID, error) { return nil, nil }

func (noQueue) Cut(context.Context, uuid.UUID, string) error { return nil }

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{agents: map[string]uuid.UUID{}, owners: map[uuid.UUID]uuid.UUID{}, refused: map[uuid.UUID]bool{}, ended: map[string]bool{}}
	sealer, err := seal.New(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	if w.url, err = url.Parse(web.URL); err != nil {
		t.Fatal(err)
	}
	log := tailnettest.Logger(t)
	w.Service, err = mesh.New(mesh.Options{
		Logger: log, Accounts: accounts{w}, Keys: noKeys{}, Organization: uuid.New(), ProvisionerPSK: psk, STUNAddress: "off", LocalURL: w.url, Sealer: sealer,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Bind(ourAgents{w}, noQueue{})
	mux := httpapi.NewMux(httpapi.Options{Logger: log, Authenticate: w.authenticate})
	w.Routes(mux)
	handler = mux
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		web.Close()
	})
	return w
}

// start joins the server's node, which answers every RPC with the kind of its caller.
func (w *world) start(t testing.TB) {
	t.Helper()
	if err := w.Start(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "rpc") })); err != nil {
		t.Fatal(err)
	}
}

// agent creates an agent that ann owns, and returns its token.
func (w *world) agent() (token string, id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token, id = "agent-"+uuid.NewString(), uuid.New()
	w.agents[token], w.owners[id] = id, ann
	return token, id
}

// join connects an external member. It does not wait.
func (w *world) join(t testing.TB, as coderdtest.Joining) *coderdtest.Member {
	t.Helper()
	return coderdtest.Join(t, w.url, as)
}

func (w *world) joinAgent(t testing.TB, token string) *coderdtest.Member {
	t.Helper()
	return w.join(t, coderdtest.AsAgent(token)).Joined()
}

func (w *world) joinUser(t testing.TB, name string) *coderdtest.Member {
	t.Helper()
	return w.join(t, coderdtest.AsUser(name)).Joined()
}

// capitals echoes its input in capitals.
func capitals(conn net.Conn) {
	if data, err := io.ReadAll(conn); err == nil {
		io.WriteString(conn, strings.ToUpper(string(data)))
	}
}

// converse sends text to an echo and checks the answer.
func converse(t testing.TB, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T has no CloseWrite", conn)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || string(answer) != "HELLO" {
		t.Fatalf("answer %q, %v", answer, err)
	}
}

// eventually waits for a condition that another goroutine fulfills.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: did not come", what)
		}
	}
}

// ends reads a connection until it ends.
func ends(t testing.TB, conn net.Conn) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	conn.SetReadDeadline(deadline)
	if _, err := io.Copy(io.Discard, conn); !time.Now().Before(deadline) {
		t.Fatalf("the connection is still open: %v", err)
	}
}
