package agents_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// namedKeys are host keys that name their agent.
type namedKeys struct{}

func (namedKeys) Agent(workspace uuid.UUID, name string) []byte {
	return []byte(workspace.String() + "." + name)
}

func (namedKeys) CertifyAgent(_ context.Context, workspace uuid.UUID, owner, name, agent string) ([]byte, error) {
	return fmt.Append(nil, workspace, owner, name, agent), nil
}

func TestManifest(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.opts.HostKeys = namedKeys{}
	c := serve(t, agents.New(w.opts)).client(id)
	got, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	m := got.Msg
	if m.GetAgentName() != "main" || m.GetWorkspaceName() != "dev" || m.GetOwnerName() != "ann" || m.GetOwnerEmail() != "ann@example.com" ||
		m.GetAccessUrl() != w.opts.AccessURL || !m.GetStartBlocksLogin() || m.GetIncarnation() != uint64(b.Number) ||
		uuid.UUID(m.GetAgentId()) != id || uuid.UUID(m.GetWorkspaceId()) != b.Workspace {
		t.Errorf("manifest: got %v", m)
	}
	if got, want := string(m.GetSshHostKey()), b.Workspace.String()+".main"; got != want {
		t.Errorf("the host key is that of %q, want %q", got, want)
	}
	if got, want := string(m.GetSshHostCertificate()), fmt.Sprint(b.Workspace, "ann", "dev", "main"); got != want {
		t.Errorf("the host certificate is that of %q, want %q", got, want)
	}
	if diff := cmp.Diff(map[string]string{"A": "1"}, m.GetEnv()); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if len(m.GetScripts()) != 1 || m.GetScripts()[0].GetScript() != "true" || len(m.GetScripts()[0].GetLogSourceId()) != 16 {
		t.Errorf("scripts: got %v", m.GetScripts())
	}
	w.revoke(b.Workspace)
	if _, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("manifest of a revoked agent: %v, want permission denied", err)
	}
}

// TestManifestIsWholeOrWithheld checks that an agent that connects while its build runs is admitted and gets no manifest
// until the build has described it. Then it is notified.
func TestManifestIsWholeOrWithheld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.BuildRow(w.WorkspaceRow("ann", "dev"), sdk.TransitionStart, sdk.JobRunning)
	id := uuid.New()
	w.store(b, false, resource(id, func(a *provisionerpb.Agent) { a.Scripts, a.Apps = nil, nil }))
	s := agents.New(w.opts)
	s.Start()
	c := serve(t, s).client(id)
	manifest := func(accepts bool) (*agentpb.ManifestResponse, error) {
		got, err := c.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{AcceptsPending: accepts}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	}
	if _, err := manifest(false); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("an agent that does not know of pending manifests: %v, want unavailable", err)
	}
	m, err := manifest(true)
	if err != nil {
		t.Fatal(err)
	}
	if !m.GetPending() || len(m.GetEnv()) > 0 || len(m.GetMetadata()) > 0 || m.GetIncarnation() != uint64(b.Number) {
		t.Errorf("pending manifest: got %v", m)
	}
	say := func(h *agentpb.Hello) *stream {
		st := c.Connect(t.Context())
		h.ProtocolVersion = 1
		if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: h}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.CloseRequest(); st.CloseResponse() })
		return st
	}
	told := func(st *stream) {
		t.Helper()
		msg, err := st.Receive()
		if err != nil || msg.GetManifestChanged() == nil {
			t.Fatalf("got %v, %v; want that the manifest has changed", msg, err)
		}
	}
	st := say(&agentpb.Hello{Incarnation: uint64(b.Number), ManifestPending: true})
	heartbeat(t, st, 1)
	testwait.Until(t, "connection", w.is(id, sdk.AgentConnected))
	w.store(b, false, resource(id, func(a *provisionerpb.Agent) { a.Complete = true }))
	told(st)
	if m, err = manifest(true); err != nil || m.GetPending() || len(m.GetScripts()) != 1 || len(m.GetApps()) != 1 || m.GetEnv()["A"] != "1" {
		t.Errorf("whole manifest: got %v, %v", m, err)
	}
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: &agentpb.Hello{Incarnation: uint64(b.Number), ExpandedDirectory: "/late"}}}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "second hello", func() error { return testwait.Equal(w.agent(id).ExpandedDirectory, "/late") })
	// The build described the agent between its manifest and its stream: the agent is notified at once.
	told(say(&agentpb.Hello{Incarnation: uint64(b.Number), ManifestPending: true}))
	// The same for another build's manifest.
	told(say(&agentpb.Hello{Incarnation: uint64(b.Number) + 1}))
}

// TestFinalReportIsComplete checks that a build's final report is complete, whatever its provisioner says.
func TestFinalReportIsComplete(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	if !w.agent(id).Complete {
		t.Error("an agent of a build that has ended has no manifest")
	}
	// The next build keeps the agent but has not described it yet.
	next := w.BuildRow(b.Workspace, sdk.TransitionStart, sdk.JobRunning)
	w.store(next, false, resource(id))
	if w.agent(id).Complete {
		t.Error("the manifest of a running build is called whole before the provisioner says so")
	}
	w.store(next, true, resource(id))
	if !w.agent(id).Complete {
		t.Error("the manifest is not whole at the build's end")
	}
}

// TestOwnerWaitsForManifest checks that the owner of a claimed workspace cannot connect before the agent has said that it has the manifest of the
// claim's build, or a later one.
func TestOwnerWaitsForManifest(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	const build = 5
	w.Exec("UPDATE workspace_agents SET build_number = $2 WHERE id = $1", id, build)
	w.Exec("UPDATE workspace_builds SET build_number = $2 WHERE job_id = $1", b.Job, build)
	if err := w.DB.AwaitManifests(t.Context(), dbsqlc.AwaitManifestsParams{WorkspaceID: &b.Workspace, BuildNumber: build}); err != nil {
		t.Fatal(err)
	}
	s := agents.New(w.opts)
	s.Start()
	c := serve(t, s).client(id)
	may := func() fault.Code { return fault.CodeOf(s.MayConnect(t.Context(), rbac.Actor{UserID: w.owner}, id)) }
	for _, hello := range []*agentpb.Hello{
		{Incarnation: build - 1}, {Incarnation: build, ManifestPending: true},
	} {
		st := c.Connect(t.Context())
		hello.ProtocolVersion = 1
		if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: hello}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.CloseRequest(); st.CloseResponse() })
		if msg, err := st.Receive(); err != nil || msg.GetManifestChanged() == nil {
			t.Fatalf("%v: got %v, %v; want that the manifest has changed", hello, msg, err)
		}
		if got := may(); got != fault.Unavailable {
			t.Errorf("%v: %s, want unavailable", hello, got)
		}
		if got := w.status(id); got != sdk.AgentConnecting {
			t.Errorf("%v: the agent is %s", hello, got)
		}
	}
	if err := s.AwaitManifests(t.Context(), time.Nanosecond, id); err == nil {
		t.Error("the agent has the manifest")
	}
	st := c.Connect(t.Context())
	hello := &agentpb.Hello{ProtocolVersion: 1, Incarnation: build}
	if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.CloseRequest(); st.CloseResponse() })
	if err := s.AwaitManifests(t.Context(), time.Minute, id); err != nil {
		t.Fatal(err)
	}
	if got := may(); got != "" || w.status(id) == sdk.AgentDisconnected {
		t.Errorf("with the manifest: %s", got)
	}
}
