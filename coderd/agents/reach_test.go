package agents_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// fakeAgent serves what an agent serves on the mesh, on loopback.
type fakeAgent struct {
	terminals, api net.Listener
	watching       chan struct{}                 // receives when a watch begins
	unwatched      chan struct{}                 // receives when it ends
	values         chan []*agentpb.MetadataValue // what the watch sends
	paths          *agentpb.PathsResponse
	changes        chan *agentpb.ChangeDevcontainerRequest // of dev containers; nil: the agent has not started any
}

func newFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	f := &fakeAgent{watching: make(chan struct{}, 8), unwatched: make(chan struct{}, 8), values: make(chan []*agentpb.MetadataValue)}
	for _, l := range []*net.Listener{&f.terminals, &f.api} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle(agentpbconnect.NewAgentAPIHandler(f))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	hs := &http.Server{Handler: mux, Protocols: protocols}
	served := make(chan struct{})
	go func() { defer close(served); _ = hs.Serve(f.api) }()
	t.Cleanup(func() { hs.Close(); <-served; f.terminals.Close() })
	return f
}

func (f *fakeAgent) dial(of uuid.UUID) func(context.Context, uuid.UUID, uint16) (net.Conn, error) {
	return func(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
		addr := map[uint16]net.Listener{meshport.Terminal: f.terminals, meshport.AgentRPC: f.api}[port]
		if agent != of || addr == nil {
			return nil, fault.New(fault.Unavailable, "nobody is there")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr.Addr().String())
	}
}

func (f *fakeAgent) ListeningPorts(context.Context, *connect.Request[agentpb.ListeningPortsRequest]) (*connect.Response[agentpb.ListeningPortsResponse], error) {
	return connect.NewResponse(&agentpb.ListeningPortsResponse{Ports: []*agentpb.ListeningPort{
		{ProcessName: "vite\x00", Network: "tcp", Port: 5173}, {Port: 70000}, {Port: 0},
	}}), nil
}

func (f *fakeAgent) Paths(context.Context, *connect.Request[agentpb.PathsRequest]) (*connect.Response[agentpb.PathsResponse], error) {
	return connect.NewResponse(f.paths), nil
}

func (f *fakeAgent) ChangeDevcontainer(_ context.Context, req *connect.Request[agentpb.ChangeDevcontainerRequest]) (*connect.Response[agentpb.ChangeDevcontainerResponse], error) {
	if f.changes == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("not started"))
	}
	f.changes <- req.Msg
	return connect.NewResponse(&agentpb.ChangeDevcontainerResponse{}), nil
}

func (f *fakeAgent) WatchMetadata(ctx context.Context, _ *connect.Request[agentpb.WatchMetadataRequest], stream *connect.ServerStream[agentpb.WatchMetadataResponse]) error {
	f.watching <- struct{}{}
	defer func() { f.unwatched <- struct{}{} }()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case values := <-f.values:
			if err := stream.Send(&agentpb.WatchMetadataResponse{Values: values}); err != nil {
				return err
			}
		}
	}
}

// accept returns the next viewer of a terminal and its request.
func (f *fakeAgent) accept(t *testing.T) (net.Conn, ptywire.Request) {
	t.Helper()
	conn, err := f.terminals.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	kind, payload, err := ptywire.Read(conn)
	var req ptywire.Request
	if err != nil || kind != ptywire.Open || json.Unmarshal(payload, &req) != nil {
		t.Fatalf("first frame: %c %q, %v", kind, payload, err)
	}
	return conn, req
}

func dialWS(t *testing.T, u *url.URL, token, path string) *websock.Conn {
	t.Helper()
	target, err := u.Parse("/api/v2/workspaceagents/" + path)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := websock.Dial(t.Context(), target, websock.DialOptions{Header: http.Header{"Coder-Session-Token": {token}}, ReadLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	return ws
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	f := newFakeAgent(t)
	w.opts.Mesh = &fakeMesh{dial: f.dial(id)}
	s := agents.New(w.opts)
	s.Start()
	t.Cleanup(s.Stop)
	u := w.Serve(s)
	terminal := uuid.New()
	open := func() (*websock.Conn, net.Conn) {
		t.Helper()
		ws := dialWS(t, u, w.Token("ann"), id.String()+"/pty?reconnect="+terminal.String()+"&height=30&width=90&command=htop")
		conn, req := f.accept(t)
		if want := (ptywire.Request{ID: terminal, Command: "htop", Size: ptywire.Size{Height: 30, Width: 90}}); req != want {
			t.Errorf("the agent was asked for %+v, want %+v", req, want)
		}
		return ws, conn
	}
	closed := func(ws *websock.Conn, want websock.Status, reason string) {
		t.Helper()
		_, err := ws.ReadAny(context.WithoutCancel(t.Context()))
		if ce, ok := errors.AsType[*websock.CloseError](err); !ok || ce.Status != want || !strings.Contains(ce.Reason, reason) {
			t.Errorf("end: %v, want status %d and %q", err, want, reason)
		}
	}
	ws, conn := open()
	for name, send := range map[string]func(context.Context, []byte) error{"text": ws.Write, "binary": ws.WriteBinary} {
		if err := send(t.Context(), []byte(`{"data":"ls\r","height":40,"width":100}`)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kind, payload, err := ptywire.Read(conn)
		if err != nil || kind != ptywire.Resize || string(payload) != `{"height":40,"width":100}` {
			t.Fatalf("%s: got %c %q, %v, want the size", name, kind, payload, err)
		}
		if kind, payload, err = ptywire.Read(conn); err != nil || kind != ptywire.Input || string(payload) != "ls\r" {
			t.Fatalf("%s: got %c %q, %v, want the key strokes", name, kind, payload, err)
		}
	}
	if err := ptywire.Write(conn, ptywire.Output, []byte("\x1b[31m\xff")); err != nil {
		t.Fatal(err)
	}
	if got, err := ws.ReadAny(t.Context()); err != nil || string(got) != "\x1b[31m\xff" {
		t.Errorf("shown: %q, %v", got, err)
	}
	if err := ptywire.WriteJSON(conn, ptywire.Exit, ptywire.End{Code: 3}); err != nil {
		t.Fatal(err)
	}
	closed(ws, websock.StatusNormal, "exit status 3")

	ws, conn = open() // the browser leaves, so the viewer at the agent leaves too
	ws.CloseNow()
	if _, _, err := ptywire.Read(conn); err == nil {
		t.Error("the agent still has a viewer")
	}
	ws, conn = open() // the agent is lost
	conn.Close()
	closed(ws, websock.StatusTryAgain, "reopen the terminal")
	ws, _ = open() // nonsense
	if err := ws.Write(t.Context(), []byte(`{"data":`)); err != nil {
		t.Fatal(err)
	}
	closed(ws, websock.StatusTryAgain, "")
	ws, _ = open() // the workspace stops
	w.revoke(b.Workspace)
	closed(ws, websock.StatusTryAgain, "")
}

func TestTerminalEndsWithTheServer(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	f := newFakeAgent(t)
	w.opts.Mesh = &fakeMesh{dial: f.dial(id)}
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	ws := dialWS(t, w.Serve(s), w.Token("ann"), id.String()+"/pty?reconnect="+uuid.NewString())
	f.accept(t)
	s.Stop()
	_, err := ws.ReadAny(context.WithoutCancel(t.Context()))
	if ce, ok := errors.AsType[*websock.CloseError](err); !ok || ce.Status != websock.StatusGoingAway {
		t.Errorf("end: %v, want going away", err)
	}
}

func TestListeningPorts(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	w.opts.Mesh = &fakeMesh{dial: newFakeAgent(t).dial(id)}
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	var got sdk.ListeningPorts
	if status := get(t, w.Serve(s), w.Token("ann"), id.String()+"/listening-ports", &got); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if diff := cmp.Diff(sdk.ListeningPorts{Ports: []sdk.ListeningPort{{ProcessName: "vite", Network: "tcp", Port: 5173}}}, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// TestPaths checks that the server accepts an agent's report of its own paths only if it is plausible.
func TestPaths(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	f := newFakeAgent(t)
	w.opts.Mesh = &fakeMesh{dial: f.dial(id)}
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	near, odd := uuid.New(), uuid.New()
	f.paths = &agentpb.PathsResponse{Paths: []*agentpb.Path{
		{Peer: near[:], Way: agentpb.Path_WAY_DIRECT, LatencyUs: 1500, Rx: 1, Tx: 2}, {Peer: odd[:], Way: 77, LatencyUs: math.MaxInt64, Rx: -1, Tx: -1},
	}}
	want := []tailnet.PeerStatus{
		{ID: near, Path: tailnet.PathDirect, Latency: 1500 * time.Microsecond, Rx: 1, Tx: 2}, {ID: odd, Path: tailnet.PathNone, Latency: time.Hour},
	}
	if got, err := s.Paths(t.Context(), id); err != nil || !cmp.Equal(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})) {
		t.Errorf("paths: got %+v, %v, want %+v", got, err, want)
	}
	f.paths.Paths[0].Peer = []byte("short")
	if got, err := s.Paths(t.Context(), id); err == nil {
		t.Errorf("an id that is none became %+v", got)
	}
	if _, err := s.Paths(t.Context(), uuid.New()); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("an agent that is not there: %v", err)
	}
}

func TestWatchMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	id := uuid.New()
	w.store(b, true, resource(id, func(a *provisionerpb.Agent) {
		a.Metadata = []*provisionerpb.AgentMetadata{{Key: "cpu", DisplayName: "CPU", Script: "coder stat cpu", Interval: 10, Timeout: 1}, {Key: "mem", Interval: 10}}
	}))
	f := newFakeAgent(t)
	var queries *coderdtest.Queries
	w.opts.DB, queries = coderdtest.Counted(t, w.DB)
	w.opts.Mesh = &fakeMesh{dial: f.dial(id)}
	s := agents.New(w.opts)
	t.Cleanup(s.Stop)
	u := w.Serve(s)

	ws := dialWS(t, u, w.Token("ann"), id.String()+"/watch-metadata-ws")
	read := func() []sdk.AgentMetadata {
		t.Helper()
		var m struct {
			Type string              `json:"type"`
			Data []sdk.AgentMetadata `json:"data"`
		}
		if err := ws.ReadJSON(t.Context(), &m); err != nil || m.Type != "data" {
			t.Fatalf("message: %+v, %v", m, err)
		}
		return m.Data
	}
	first := read()
	if len(first) != 2 || first[0].Description != (sdk.AgentMetadataDescription{Key: "cpu", DisplayName: "CPU", Script: "coder stat cpu", Interval: 10, Timeout: 1}) || first[0].Result.Value != "" {
		t.Errorf("before anything is known: %+v", first)
	}
	<-f.watching
	before := queries.Count()
	f.values <- []*agentpb.MetadataValue{{Key: "cpu", CollectedAt: timestamppb.Now(), Value: "7 %\x00"}, {Key: "stranger", Value: "x"}}
	if got := read(); got[0].Result.Value != "7 %" || got[0].Result.CollectedAt.IsZero() || got[1].Result.Value != "" {
		t.Errorf("after a value: %+v", got)
	}
	if wrote := queries.Count() - before; wrote > 1 {
		t.Errorf("a value made %d queries, want one read at most", wrote)
	}
	f.values <- []*agentpb.MetadataValue{{Key: "mem", CollectedAt: timestamppb.Now(), Error: "exit status 1"}}
	if got := read(); got[1].Result.Error != "exit status 1" || got[0].Result.Value != "7 %" {
		t.Errorf("after another: %+v", got)
	}
	ws.CloseNow()
	<-f.unwatched // without a watcher the server does not ask

	// The last values arrive at once, as server-sent events too.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.JoinPath("/api/v2/workspaceagents", id.String(), "watch-metadata").String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token("ann"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "event: data" || !lines.Scan() {
		t.Fatalf("event: %q", lines.Text())
	}
	var got []sdk.AgentMetadata
	if data, ok := strings.CutPrefix(lines.Text(), "data: "); !ok || json.Unmarshal([]byte(data), &got) != nil || len(got) != 2 || got[0].Result.Value != "7 %" {
		t.Errorf("event's data: %q", lines.Text())
	}
}
