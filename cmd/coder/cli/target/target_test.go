package target_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that a correct program never uses up.
const patience = testwait.Patience

// server is what a target needs of one: the API for one workspace, a coordinator and a relay.
type server struct {
	t     *testing.T
	url   *url.URL
	coord *coordinator.Server
	agent uuid.UUID
	out   bytes.Buffer // what the program shows

	mu     sync.Mutex
	ws     sdk.Workspace // as the API shows it
	err    *fault.Error  // the API's answer instead
	starts []sdk.CreateBuildRequest
	// connection is what the API says about the connection to the agent.
	connection sdk.AgentConnection
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, agent: uuid.New()}
	derp, err := relay.New(relay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.coord = coordinator.New(coordinator.Options{
		Logger: slog.New(slog.DiscardHandler), Authorizer: coordinator.AuthorizerFunc(anyone), Relay: derp,
		RelayMap: func() tailnet.RelayMap {
			return tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "home", Name: "Home"}}}
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/derp", derp.Handler())
	mux.Handle("/derp/", derp.Handler())
	mux.HandleFunc("GET "+protocol.Path, s.coordinate)
	mux.HandleFunc("GET /api/v2/users/me/workspace/dev", s.workspace)
	mux.HandleFunc("GET /api/v2/workspaces/{id}", s.workspace)
	mux.HandleFunc("GET /api/v2/workspaceagents/{id}/connection", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answer(w, s.connection)
	})
	mux.HandleFunc("POST /api/v2/workspaces/{id}/builds", s.start)
	mux.HandleFunc("GET /api/v2/workspacebuilds/{id}", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.shown().LatestBuild) })
	mux.HandleFunc("GET /api/v2/workspacebuilds/{id}/logs", func(w http.ResponseWriter, r *http.Request) {
		if conn, err := websock.Accept(w, r, websock.AcceptOptions{}); err == nil {
			conn.Close(websock.StatusNormal, "") // there are no lines
		}
	})
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.coord.Close()
		web.CloseClientConnections()
		web.Close()
		derp.Close()
	})
	if s.url, err = url.Parse(web.URL); err != nil {
		t.Fatal(err)
	}
	s.build(sdk.TransitionStart, sdk.JobSucceeded, sdk.WorkspaceRunning)
	return s
}

func anyone(context.Context, coordinator.Principal, coordinator.Target) error { return nil }

// coordinate admits clients, and the agent by its token.
func (s *server) coordinate(w http.ResponseWriter, r *http.Request) {
	hello, err := protocol.ParseHello(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := coordinator.Principal{Kind: protocol.KindClient, ID: tailnet.ClientID(hello.Key), Name: "ann"}
	if r.Header.Get(sdk.AgentTokenHeader) != "" {
		p = coordinator.Principal{Kind: protocol.KindAgent, ID: s.agent, Name: "dev"}
	}
	if err := s.coord.Handle(w, r, p, hello); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
	}
}

// build makes a new build the workspace's latest.
func (s *server) build(transition sdk.Transition, job sdk.JobStatus, status sdk.WorkspaceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ws.ID, s.ws.Name, s.ws.OwnerName = uuid.UUID{1}, "dev", "ann"
	s.ws.LatestBuild = sdk.WorkspaceBuild{
		ID: uuid.New(), BuildNumber: s.ws.LatestBuild.BuildNumber + 1, Transition: transition, Status: status, Job: sdk.ProvisionerJob{Status: job},
		Resources: []sdk.WorkspaceResource{{Agents: []sdk.WorkspaceAgent{{ID: s.agent, Name: "main", Status: sdk.AgentConnected}}}},
	}
}

// change changes what the API answers.
func (s *server) change(f func(*sdk.Workspace)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.ws)
}

func (s *server) fail(err *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *server) shown() sdk.Workspace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ws
}

func (s *server) workspace(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	switch fault.CodeOf(err) {
	case fault.NotFound:
		http.Error(w, `{"message": "There is no such workspace."}`, http.StatusNotFound)
	case fault.Unauthenticated:
		http.Error(w, `{"message": "The session has ended."}`, http.StatusUnauthorized)
	default:
		s.answer(w, s.shown())
	}
}

func (s *server) start(w http.ResponseWriter, r *http.Request) {
	var req sdk.CreateBuildRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		s.t.Error(err)
	}
	s.build(sdk.TransitionStart, sdk.JobSucceeded, sdk.WorkspaceRunning)
	s.mu.Lock()
	s.starts = append(s.starts, req)
	s.mu.Unlock()
	s.answer(w, s.shown().LatestBuild)
}

func (s *server) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

// options return how ann reaches a workspace.
func (s *server) options(name target.Name) target.Options {
	client := sdk.New(s.url, secret.Token("ann"), sdk.Options{})
	s.t.Cleanup(client.HTTP().CloseIdleConnections)
	return target.Options{Client: client, Streams: &tty.Streams{In: strings.NewReader(""), Out: &s.out, Err: &s.out}, Name: name, Reason: sdk.ReasonSSH}
}

var dev = target.Name{Owner: sdk.Me, Name: "dev"}

// reach reaches the workspace, which must work.
func (s *server) reach(opts target.Options) *target.Target {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	t, err := target.Reach(ctx, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { t.Mesh.Close() })
	return t
}

// join joins the workspace's agent, which echoes on port 7.
func (s *server) join() {
	s.t.Helper()
	key := tailnet.NewPrivateKey()
	var node *tailnet.Node
	agent := client.New(client.Options{
		URL: s.url, Kind: protocol.KindAgent, Key: key.Public(),
		Header:  func(context.Context) (http.Header, error) { return http.Header{sdk.AgentTokenHeader: {"agent"}}, nil },
		Inbound: func(protocol.Kind) tailnet.Inbound { return tailnet.InboundAll },
		NewNode: func(welcome protocol.Welcome) (_ client.Node, err error) {
			node, err = tailnet.New(tailnet.Options{ID: welcome.ID, Key: key})
			return node, err
		},
	})
	agent.Start()
	s.t.Cleanup(func() {
		agent.Close()
		if node != nil {
			node.Close()
		}
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if _, err := agent.Welcome(ctx); err != nil {
		s.t.Fatal(err)
	}
	l, err := node.Listen(7)
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
}

// converse sends text to the agent's echo.
func converse(t *testing.T, to *target.Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := to.Mesh.Dial(ctx, "tcp", to.Agent.ID, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("the agent answered %q, %v", got, err)
	}
}

// TestReach checks that the agent of a running workspace can be dialled, and that nothing is started for it.
func TestReach(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.join()
	to := s.reach(s.options(dev))
	if to.Agent.ID != s.agent || to.Workspace.Name != "dev" {
		t.Errorf("reached the agent %s of %s", to.Agent.ID, to.Workspace.Name)
	}
	converse(t, to)
	if len(s.starts) != 0 || s.out.Len() != 0 {
		t.Errorf("started %+v, showed %q", s.starts, s.out.String())
	}
}

// TestReachStartsWorkspace checks that a stopped workspace is started once, with the caller's reason, if that is allowed.
func TestReachStartsWorkspace(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.build(sdk.TransitionStop, sdk.JobSucceeded, sdk.WorkspaceStopped)
	s.join()
	opts := s.options(dev)
	opts.Autostart = true
	converse(t, s.reach(opts))
	if len(s.starts) != 1 || s.starts[0].Transition != sdk.TransitionStart || s.starts[0].Reason != sdk.ReasonSSH {
		t.Errorf("started %+v, want one start because of an SSH connection", s.starts)
	}
	if !strings.Contains(s.out.String(), "ann/dev is stopped. Starting it.") {
		t.Errorf("showed %q", s.out.String())
	}
}

// TestReachRefuses checks that workspaces without an agent to dial give an error with a remedy, and start nothing.
func TestReachRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*server)
		agent   string
		code    fault.Code
		hint    string
	}{
		"stopped":       {func(s *server) { s.build(sdk.TransitionStop, sdk.JobSucceeded, sdk.WorkspaceStopped) }, "", fault.Conflict, "coder start ann/dev"},
		"failed":        {func(s *server) { s.build(sdk.TransitionStart, sdk.JobFailed, sdk.WorkspaceFailed) }, "", fault.Conflict, "coder start ann/dev"},
		"deleted":       {func(s *server) { s.build(sdk.TransitionDelete, sdk.JobSucceeded, sdk.WorkspaceDeleted) }, "", fault.NotFound, "coder create dev"},
		"missing":       {func(s *server) { s.fail(fault.New(fault.NotFound, "missing")) }, "", fault.NotFound, "coder list"},
		"other agent":   {func(*server) {}, "gpu", fault.NotFound, ""},
		"no agent":      {func(s *server) { s.change(func(ws *sdk.Workspace) { ws.LatestBuild.Resources = nil }) }, "", fault.NotFound, "coder show dev"},
		"ended session": {func(s *server) { s.fail(fault.New(fault.Unauthenticated, "ended")) }, "", fault.Unauthenticated, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			c.prepare(s)
			_, err := target.Reach(t.Context(), s.options(target.Name{Owner: sdk.Me, Name: "dev", Agent: c.agent}))
			if hint, _ := exit.Hint(err); fault.CodeOf(err) != c.code || c.hint != "" && hint != c.hint {
				t.Errorf("got %v with the hint %q, want code %q and hint %q", err, hint, c.code, c.hint)
			}
			if len(s.starts) != 0 {
				t.Errorf("started %+v", s.starts)
			}
		})
	}
}

// TestReachGivesUp checks that waiting for an agent that is not connected ends when its workspace is stopped meanwhile.
func TestReachGivesUp(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	looked := make(chan struct{})
	var once sync.Once
	opts := s.options(dev)
	opts.Streams.Err = writer(func(p []byte) (int, error) { // the program explains what it waits for
		once.Do(func() { close(looked) })
		return len(p), nil
	})
	go func() {
		<-looked
		s.build(sdk.TransitionStop, sdk.JobSucceeded, sdk.WorkspaceStopped)
		s.change(func(ws *sdk.Workspace) { ws.LatestBuild.InitiatorName = "bob" })
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := target.Reach(ctx, opts)
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "ann/dev was stopped by bob") {
		t.Errorf("got %v", err)
	}
}

// TestReachNamesUnlinkedServers checks that who waits for a connected agent learns which two servers have no link.
func TestReachNamesUnlinkedServers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.change(func(*sdk.Workspace) {
		s.connection = sdk.AgentConnection{Server: uuid.UUID{0xaa}, UnreachableServer: uuid.UUID{0xbb}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	opts := s.options(dev)
	var shown bytes.Buffer
	opts.Streams.Err = writer(func(p []byte) (int, error) {
		shown.Write(p)
		if strings.Contains(shown.String(), "the server aa000000, which answers this command, cannot reach the server bb000000, which the agent is connected to") {
			cancel()
		}
		return len(p), nil
	})
	if _, err := target.Reach(ctx, opts); !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("got %v, shown %q", err, shown.String())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestWhyLost checks the reason that a user sees for a connection that ended.
func TestWhyLost(t *testing.T) {
	t.Parallel()
	fallback := fault.New(fault.Unavailable, "the connection was lost")
	for name, c := range map[string]struct {
		prepare func(*server)
		want    string
	}{
		"nothing known": {func(*server) {}, "the connection was lost"},
		"stopped": {func(s *server) {
			s.build(sdk.TransitionStop, sdk.JobSucceeded, sdk.WorkspaceStopped)
			s.change(func(ws *sdk.Workspace) { ws.LatestBuild.Reason = sdk.ReasonAutostop })
		}, "ann/dev was stopped by its schedule"},
		"deleted":       {func(s *server) { s.build(sdk.TransitionDelete, sdk.JobSucceeded, sdk.WorkspaceDeleted) }, "ann/dev was deleted"},
		"restarted":     {func(s *server) { s.build(sdk.TransitionStart, sdk.JobSucceeded, sdk.WorkspaceRunning) }, "ann/dev was restarted"},
		"ended session": {func(s *server) { s.fail(fault.New(fault.Unauthenticated, "ended")) }, "your session has ended"},
		"agent is away": {func(s *server) {
			s.change(func(ws *sdk.Workspace) { ws.LatestBuild.Resources[0].Agents[0].Status = sdk.AgentDisconnected })
		}, "the agent of ann/dev lost its connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			ws := s.shown()
			to := &target.Target{Workspace: ws, Agent: ws.LatestBuild.Agents()[0], Client: s.options(dev).Client}
			c.prepare(s)
			if err := to.WhyLost(t.Context(), fallback); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
