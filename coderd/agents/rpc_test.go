package agents_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// server serves the service's RPCs on loopback. Agents come from addresses of 127.0.0.0/8, which callers maps to their ids.
type server struct {
	t       *testing.T
	url     string
	callers sync.Map // netip.Addr → uuid.UUID
	next    atomic.Uint32
}

func serve(t *testing.T, s *agents.Service) *server {
	t.Helper()
	sv := &server{t: t}
	mux := http.NewServeMux()
	mux.Handle(s.RPCHandler(func(addr netip.Addr) (uuid.UUID, bool) {
		id, ok := sv.callers.Load(addr.Unmap())
		if !ok {
			return uuid.Nil, false
		}
		return id.(uuid.UUID), true
	}))
	sv.url = coderdtest.ServeRPC(t, mux)
	t.Cleanup(s.Stop)
	return sv
}

// client returns an agent's client; uuid.Nil is for a caller that is not an agent.
func (s *server) client(agent uuid.UUID) agentpbconnect.AgentServiceClient {
	addr := netip.AddrFrom4([4]byte{127, 0, 1, byte(s.next.Add(1))})
	if agent != uuid.Nil {
		s.callers.Store(addr, agent)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: addr.AsSlice()}}
	return agentpbconnect.NewAgentServiceClient(coderdtest.RPCClient(s.t, dialer.DialContext), s.url)
}

type stream = connect.BidiStreamForClient[agentpb.AgentMessage, agentpb.ServerMessage]

func hello(t *testing.T, c agentpbconnect.AgentServiceClient) *stream {
	t.Helper()
	st := c.Connect(t.Context())
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: &agentpb.Hello{
		Version: "v2.31.0", ApiVersion: "2.0", OperatingSystem: "linux", Architecture: "arm64", ExpandedDirectory: "/home/ann", ProtocolVersion: 1,
		Subsystems: []string{"", "exectrace", "anything", "envbuilder", "exectrace"},
	}}}); err != nil && !errors.Is(err, io.EOF) { // EOF: the server has already ended the stream, and Receive returns why
		t.Fatal(err)
	}
	t.Cleanup(func() { st.CloseRequest(); st.CloseResponse() })
	return st
}

// heartbeat sends a heartbeat and waits for its answer.
func heartbeat(t *testing.T, st *stream, nonce uint64) {
	t.Helper()
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Heartbeat{Heartbeat: &agentpb.Heartbeat{Nonce: nonce, RelayLatencyUs: 1500}}}); err != nil {
		t.Fatal(err)
	}
	msg, err := st.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if got := msg.GetHeartbeatAck().GetNonce(); got != nonce {
		t.Fatalf("answer to heartbeat %d: got %v", nonce, msg)
	}
}

// running returns a world with one agent of a start that has succeeded.
func running(t *testing.T) (*world, coderdtest.Build, uuid.UUID) {
	t.Helper()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobSucceeded)
	id := uuid.New()
	w.store(b, true, resource(id))
	return w, b, id
}

func (w *world) is(id uuid.UUID, want sdk.AgentStatus) func() error {
	return func() error {
		a, err := w.DB.GetAgentWithStatus(w.T.Context(), id)
		if err != nil {
			return err
		}
		return testwait.Equal(sdk.AgentStatus(a.Status), want)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	w, _, _ := running(t)
	c := serve(t, agents.New(w.opts)).client(uuid.Nil)
	now := timestamppb.Now()
	st := hello(t, c)
	_, err := st.Receive()
	for name, got := range map[string]error{
		"Connect":  err,
		"Manifest": second(c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))),
		"Lifecycle": second(c.Lifecycle(t.Context(), connect.NewRequest(&agentpb.LifecycleRequest{
			State: agentpb.LifecycleState_LIFECYCLE_STATE_READY, ChangedAt: now,
		}))),
		"Logs":         second(c.Logs(t.Context(), connect.NewRequest(&agentpb.LogsRequest{}))),
		"AppHealth":    second(c.AppHealth(t.Context(), connect.NewRequest(&agentpb.AppHealthRequest{}))),
		"Stats":        second(c.Stats(t.Context(), connect.NewRequest(&agentpb.StatsRequest{}))),
		"GitSSHKey":    second(c.GitSSHKey(t.Context(), connect.NewRequest(&agentpb.GitSSHKeyRequest{}))),
		"ExternalAuth": second(c.ExternalAuth(t.Context(), connect.NewRequest(&agentpb.ExternalAuthRequest{Of: &agentpb.ExternalAuthRequest_ProviderId{ProviderId: "x"}}))),
		"Monitors":     second(c.Monitors(t.Context(), connect.NewRequest(&agentpb.MonitorsRequest{}))),
		"ScriptDone":   second(c.ScriptDone(t.Context(), connect.NewRequest(&agentpb.ScriptDoneRequest{}))),
	} {
		if connect.CodeOf(got) != connect.CodePermissionDenied {
			t.Errorf("%s: got %v, want permission denied", name, got)
		}
	}
}

func second[T any](_ T, err error) error { return err }
