//go:build linux

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	gossh "golang.org/x/crypto/ssh"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent"
	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/sshmux"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// world is a server and a mesh built on loopback sockets. It implements agentpbconnect.AgentServiceHandler and agent.Mesh.
type world struct {
	paths    []tailnet.PeerStatus // what the mesh measures
	rpcs     net.Listener
	http     *http.Server
	manifest *agentpb.ManifestResponse
	dir      string

	mu        sync.Mutex // guards the fields below
	changed   chan struct{}
	states    []agentpb.LifecycleState
	changedAt time.Time                             // of the last of states
	done      map[string]*agentpb.ScriptDoneRequest // by stage and script id
	lines     map[string][]string                   // by log source
	gap       error
	loseLogs  int // how many answers to Logs to lose
	hellos    []*agentpb.Hello
	health    map[string][]agentpb.Health // by app
	stats     []*agentpb.StatsRequest
	shutdown  chan string
	final     bool                  // the agent ends with the workspace
	silent    bool                  // calls about the next start get no answer
	late      bool                  // they come after the stop has ended
	removed   chan struct{}         // closed when the server has refused the agent
	refusal   error                 // set before
	next      chan secret.Token     // that the agent hands on when the workspace stops
	renewed   chan struct{}         // the server reports that the manifest has changed
	conns     map[net.Conn]struct{} // of the server
	ports     map[uint16]net.Listener
	tcp       func(src, dst netip.AddrPort) (func(net.Conn), bool)
	gitKey    *agentpb.GitSSHKeyResponse    // nil: the server refuses
	login     *agentpb.ExternalAuthResponse // nil: no provider matches the request
	asked     []*agentpb.ExternalAuthRequest

	containers []*agentpb.DevcontainerStateRequest
	admitted   []*agentpb.AdmitSubagentRequest

	levels       []*agentpb.MonitorsRequest
	refuseLevels bool // the answer has the states of the manifest

	connections       map[uuid.UUID]*agentpb.Connection // the last report of each
	firsts            int                               // reports of a new process
	refuseConnections bool
}

func newWorld(t testing.TB, scripts ...*agentpb.Script) *world {
	t.Helper()
	w := &world{
		dir: t.TempDir(), changed: make(chan struct{}), shutdown: make(chan string, 1), removed: make(chan struct{}), next: make(chan secret.Token, 1), renewed: make(chan struct{}, 1),
		done: make(map[string]*agentpb.ScriptDoneRequest), lines: make(map[string][]string),
		conns: make(map[net.Conn]struct{}), ports: make(map[uint16]net.Listener), health: make(map[string][]agentpb.Health),
		connections: make(map[uuid.UUID]*agentpb.Connection),
	}
	id := uuid.New()
	w.manifest = &agentpb.ManifestResponse{
		AgentId: id[:], AgentName: "main", WorkspaceId: id[:], WorkspaceName: "dev", OwnerName: "ann", AccessUrl: "http://server",
		Directory: w.dir, Env: map[string]string{"GREETING": "hi $CODER_WORKSPACE_NAME $not_set", "PATH": "/extra:$PATH"},
		Incarnation: 1, Scripts: scripts, VscodeProxyUri: "https://{{port}}.example",
	}
	mux := http.NewServeMux()
	mux.Handle(agentpbconnect.NewAgentServiceHandler(w))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	w.http = &http.Server{Handler: mux, Protocols: protocols, ConnState: w.connState}
	w.rpcs = listen(t)
	served := make(chan struct{})
	go func() { defer close(served); _ = w.http.Serve(w.rpcs) }()
	t.Cleanup(func() { w.http.Close(); <-served })
	return w
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *world) connState(c net.Conn, s http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s == http.StateNew {
		w.conns[c] = struct{}{}
	}
	if s == http.StateClosed {
		delete(w.conns, c)
	}
}

// cut ends every connection with the server.
func (w *world) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

// update changes the world's state and wakes until.
func (w *world) update(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

// until blocks until cond, which it calls with the lock held after each change, returns true. If that does not happen, it prints what the agent has
// reported.
func (w *world) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	timeout := time.NewTimer(testwait.Patience)
	defer timeout.Stop()
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			w.mu.Lock()
			defer w.mu.Unlock()
			t.Fatalf("still not after %s: %s\nstates %v\nlines %q\nended %v\nhellos %v\nstatistics %v\nhealth %v\ncontainers %v\nlevels %v",
				testwait.Patience, what, w.states, w.lines, w.done, w.hellos, w.stats, w.health, w.containers, w.levels)
		}
	}
}

func (w *world) GitSSHKey(context.Context, *connect.Request[agentpb.GitSSHKeyRequest]) (*connect.Response[agentpb.GitSSHKeyResponse], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gitKey == nil {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no key"))
	}
	return connect.NewResponse(w.gitKey), nil
}

func (w *world) IDToken(_ context.Context, req *connect.Request[agentpb.IDTokenRequest]) (*connect.Response[agentpb.IDTokenResponse], error) {
	switch req.Msg.GetAudience() {
	case "vault":
		return connect.NewResponse(&agentpb.IDTokenResponse{Token: "id-token", ExpiresAt: timestamppb.New(time.Unix(1e9, 0))}), nil
	case "busy":
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("try again"))
	}
	return nil, connect.NewError(connect.CodePermissionDenied, errors.New("the template does not allow it"))
}

func (w *world) ExternalAuth(_ context.Context, req *connect.Request[agentpb.ExternalAuthRequest]) (*connect.Response[agentpb.ExternalAuthResponse], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, req.Msg)
	if w.login == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such login"))
	}
	return connect.NewResponse(w.login), nil
}

func (w *world) Manifest(context.Context, *connect.Request[agentpb.ManifestRequest]) (*connect.Response[agentpb.ManifestResponse], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return connect.NewResponse(w.manifest), nil
}

func (w *world) Connect(_ context.Context, stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage]) error {
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := stream.Receive()
			if err != nil {
				ended <- err
				return
			}
			if hello := m.GetHello(); hello != nil {
				w.update(func() { w.hellos = append(w.hellos, hello) })
			}
		}
	}()
	for {
		select {
		case reason := <-w.shutdown:
			m := &agentpb.ServerMessage{Message: &agentpb.ServerMessage_Shutdown{Shutdown: &agentpb.Shutdown{Reason: reason}}}
			if err := stream.Send(m); err != nil {
				return errors.Join(err, <-ended)
			}
		case <-w.renewed:
			m := &agentpb.ServerMessage{Message: &agentpb.ServerMessage_ManifestChanged{ManifestChanged: &agentpb.ManifestChanged{}}}
			if err := stream.Send(m); err != nil {
				return errors.Join(err, <-ended)
			}
		case err := <-ended:
			return err
		}
	}
}

// renew changes the manifest and notifies the agent.
func (w *world) renew(change func(*agentpb.ManifestResponse)) {
	w.update(func() {
		m := proto.CloneOf(w.manifest)
		change(m)
		w.manifest = m
	})
	w.renewed <- struct{}{}
}

func (w *world) Lifecycle(_ context.Context, r *connect.Request[agentpb.LifecycleRequest]) (*connect.Response[agentpb.LifecycleResponse], error) {
	// As in the protocol, a report whose answer was lost comes again, and one that is not newer is ignored.
	at := r.Msg.GetChangedAt().AsTime()
	w.update(func() {
		if at.After(w.changedAt) {
			w.states, w.changedAt = append(w.states, r.Msg.GetState()), at
		}
	})
	return connect.NewResponse(&agentpb.LifecycleResponse{}), nil
}

func (w *world) Logs(_ context.Context, r *connect.Request[agentpb.LogsRequest]) (*connect.Response[agentpb.LogsResponse], error) {
	source := string(r.Msg.GetLogSourceId())
	var stored uint64
	lost := false
	w.update(func() {
		for _, l := range r.Msg.GetLines() {
			have := uint64(len(w.lines[source]))
			if l.GetSeq() > have+1 {
				w.gap = fmt.Errorf("line %d after %d", l.GetSeq(), have)
			}
			if l.GetSeq() == have+1 {
				w.lines[source] = append(w.lines[source], l.GetOutput())
			}
		}
		stored = uint64(len(w.lines[source]))
		if w.loseLogs > 0 {
			w.loseLogs--
			lost = true
		}
	})
	if lost {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("lost"))
	}
	return connect.NewResponse(&agentpb.LogsResponse{StoredSeq: stored}), nil
}

func (w *world) ScriptDone(_ context.Context, r *connect.Request[agentpb.ScriptDoneRequest]) (*connect.Response[agentpb.ScriptDoneResponse], error) {
	w.update(func() { w.done[r.Msg.GetStage()+string(r.Msg.GetScriptId())] = r.Msg })
	return connect.NewResponse(&agentpb.ScriptDoneResponse{}), nil
}

func (w *world) AppHealth(_ context.Context, r *connect.Request[agentpb.AppHealthRequest]) (*connect.Response[agentpb.AppHealthResponse], error) {
	w.update(func() {
		for _, a := range r.Msg.GetApps() {
			w.health[string(a.GetId())] = append(w.health[string(a.GetId())], a.GetHealth())
		}
	})
	return connect.NewResponse(&agentpb.AppHealthResponse{}), nil
}

func (w *world) Stats(_ context.Context, r *connect.Request[agentpb.StatsRequest]) (*connect.Response[agentpb.StatsResponse], error) {
	w.update(func() { w.stats = append(w.stats, r.Msg) })
	return connect.NewResponse(&agentpb.StatsResponse{}), nil
}

func (w *world) DevcontainerState(_ context.Context, r *connect.Request[agentpb.DevcontainerStateRequest]) (*connect.Response[agentpb.DevcontainerStateResponse], error) {
	w.update(func() { w.containers = append(w.containers, r.Msg) })
	return connect.NewResponse(&agentpb.DevcontainerStateResponse{}), nil
}

func (w *world) AdmitSubagent(_ context.Context, r *connect.Request[agentpb.AdmitSubagentRequest]) (*connect.Response[agentpb.AdmitSubagentResponse], error) {
	var n int
	w.update(func() {
		w.admitted = append(w.admitted, r.Msg)
		n = len(w.admitted)
	})
	return connect.NewResponse(&agentpb.AdmitSubagentResponse{Token: fmt.Sprintf("token-%d", n)}), nil
}

func (w *world) AwaitStart(context.Context, *connect.Request[agentpb.AwaitStartRequest]) (*connect.Response[agentpb.AwaitStartResponse], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		panic(http.ErrAbortHandler)
	}
	if w.late {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("stopped already"))
	}
	if w.final {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("deleted"))
	}
	if slices.Contains(w.states, off) {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("too late"))
	}
	return connect.NewResponse(&agentpb.AwaitStartResponse{Token: "next"}), nil
}

func (w *world) Monitors(_ context.Context, r *connect.Request[agentpb.MonitorsRequest]) (*connect.Response[agentpb.MonitorsResponse], error) {
	answer := &agentpb.MonitorsResponse{Levels: r.Msg.GetLevels()}
	w.update(func() {
		w.levels = append(w.levels, r.Msg)
		if w.refuseLevels {
			answer.Levels = nil
			for _, m := range w.manifest.GetMonitors() {
				answer.Levels = append(answer.Levels, &agentpb.MonitorLevel{Volume: m.GetVolume(), Over: m.GetOver()})
			}
		}
	})
	return connect.NewResponse(answer), nil
}

func (w *world) Connections(_ context.Context, r *connect.Request[agentpb.ConnectionsRequest]) (*connect.Response[agentpb.ConnectionsResponse], error) {
	var err error
	w.update(func() {
		if w.refuseConnections {
			err = connect.NewError(connect.CodeUnavailable, errors.New("try again"))
			return
		}
		w.firsts += map[bool]int{true: 1}[r.Msg.GetFirst()]
		for _, c := range r.Msg.GetConnections() {
			w.connections[uuid.UUID(c.GetId())] = c
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentpb.ConnectionsResponse{}), nil
}

func (w *world) Listen(port uint16) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.update(func() { w.ports[port] = l })
	return l, err
}

func (w *world) HandleTCP(choose func(src, dst netip.AddrPort) (func(net.Conn), bool)) {
	w.update(func() { w.tcp = choose })
}
func (w *world) HandleUDP(func(src, dst netip.AddrPort) (func(net.Conn), bool)) {}
func (w *world) DialServer(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", w.rpcs.Addr().String())
}
func (w *world) ServerLastSeen() (since, last time.Time) { return since, last }
func (w *world) Reconnected(ctx context.Context) error   { <-ctx.Done(); return ctx.Err() }
func (w *world) RelayLatency() time.Duration             { return time.Millisecond }

func (w *world) Measure(_ context.Context, which func(uuid.UUID) bool) []tailnet.PeerStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.paths), func(p tailnet.PeerStatus) bool { return !which(p.ID) })
}
func (w *world) Done() <-chan struct{} { return w.removed }
func (w *world) Err() error            { return w.refusal }
func (w *world) Close() error          { return nil }

// run starts an agent in the world. stop shuts it down in an orderly way.
func (w *world) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, agent.Options{
			Subsystems: []string{"envbuilder"},
			Token:      secret.Token("x"), StateDir: filepath.Join(w.dir, "state"), LogDir: filepath.Join(w.dir, "log"),
			StatsInterval: 50 * time.Millisecond, MonitorInterval: 20 * time.Millisecond,
			Stopped: func(next secret.Token) { w.next <- next },
			Join:    func(context.Context) (agent.Mesh, error) { return w, nil },
		})
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	w.until(t, "hello", func() bool { return len(w.hellos) > 0 })
	return stop
}

func (w *world) dial(t testing.TB) *gossh.Client {
	t.Helper()
	w.mu.Lock()
	addr := w.ports[meshport.Session].Addr().String()
	w.mu.Unlock()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	client := sshmux.Client(conn, sshmux.Options{})
	t.Cleanup(func() { client.Close() })
	return client
}
