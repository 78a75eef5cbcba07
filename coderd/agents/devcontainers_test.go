package agents_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// nested is a workspace whose agent starts a dev container.
type nested struct {
	*world
	build                    coderdtest.Build
	agent, container, inside uuid.UUID
}

// with returns the resource with the agent and its dev container.
func (n *nested) with() *provisionerpb.Resource {
	return resource(n.agent, func(a *provisionerpb.Agent) {
		a.Devcontainers = []*provisionerpb.Devcontainer{{
			Id: n.container[:], WorkspaceFolder: "/work/app", ConfigPath: ".devcontainer.json", Agent: &provisionerpb.Agent{
				Id: n.inside[:], Name: "app", Os: "linux", Arch: "amd64", Token: "forged", // no build gives it a token
				Apps: []*provisionerpb.App{{Slug: "web", Url: "http://localhost:80", Share: "owner"}},
			},
		}}
	})
}

func newNested(t *testing.T, w *world, owner, name string) *nested {
	t.Helper()
	n := &nested{world: w, agent: uuid.New(), container: uuid.New(), inside: uuid.New()}
	n.build = w.BuildRow(w.WorkspaceRow(owner, name), sdk.TransitionStart, sdk.JobSucceeded)
	if got := w.store(n.build, true, n.with()); !slices.Equal(got, []uuid.UUID{n.agent, n.inside}) {
		t.Fatalf("the build has the agents %v", got)
	}
	return n
}

func (n *nested) report(t *testing.T, c agentpbconnect.AgentServiceClient, state agentpb.DevcontainerStateRequest_State, problem string) error {
	t.Helper()
	_, err := c.DevcontainerState(t.Context(), connect.NewRequest(&agentpb.DevcontainerStateRequest{
		DevcontainerId: n.container[:], State: state, Error: problem, ContainerId: "c0ffee", ContainerName: "app_1", Image: "box",
	}))
	return err
}

func (n *nested) admit(t *testing.T, c agentpbconnect.AgentServiceClient, directory string) (string, error) {
	t.Helper()
	got, err := c.AdmitSubagent(t.Context(), connect.NewRequest(&agentpb.AdmitSubagentRequest{DevcontainerId: n.container[:], Directory: directory}))
	if err != nil {
		return "", err
	}
	return got.Msg.GetToken(), nil
}

// subagent is a nested workspace whose agent calls a running service.
type subagent struct {
	*nested
	svc     *agents.Service
	serving *server
	rpc     agentpbconnect.AgentServiceClient // of the outer agent
	url     *url.URL
	revoked chan uuid.UUID // agents that left the mesh
}

func TestSubagent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &subagent{nested: newNested(t, w, "ann", "dev"), revoked: make(chan uuid.UUID, 16)}
	w.opts.Mesh = &fakeMesh{revoked: s.revoked}
	s.svc = agents.New(w.opts)
	s.svc.Start()
	s.serving, s.url = serve(t, s.svc), w.Serve(s.svc)
	s.rpc = s.serving.client(s.agent)
	s.startsNothing(t)
	s.replaces(t, s.runs(t))
	s.ends(t)
}

func (s *subagent) ann() rbac.Actor { return rbac.Actor{UserID: s.owner} }

func (s *subagent) authenticate(t *testing.T, token string) (agents.Agent, error) {
	t.Helper()
	return s.svc.AuthenticateAgent(t.Context(), secret.Token(token))
}

// startsNothing: the agent learns what to start. Nothing is admitted yet, not even with a token that the build claims.
func (s *subagent) startsNothing(t *testing.T) {
	t.Helper()
	m, err := s.rpc.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{AcceptsPending: true}))
	if err != nil || len(m.Msg.GetDevcontainers()) != 1 || m.Msg.GetDevcontainers()[0].GetName() != "app" || m.Msg.GetDevcontainers()[0].GetWorkspaceFolder() != "/work/app" {
		t.Fatalf("manifest: %v, %v", m, err)
	}
	if _, err := s.authenticate(t, "forged"); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a token of the build: %v", err)
	}
	if err := s.svc.MayConnect(t.Context(), s.ann(), s.inside); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "dev container") {
		t.Errorf("connect before it runs: %v", err)
	}
}

// runs: once the container runs, its agent is one of the workspace. It returns the token of the agent inside.
func (s *subagent) runs(t *testing.T) (token string) {
	t.Helper()
	first, err := s.admit(t, s.rpc, "/workspaces/app")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.report(t, s.rpc, agentpb.DevcontainerStateRequest_STATE_RUNNING, ""); err != nil {
		t.Fatal(err)
	}
	if got, err := s.authenticate(t, first); err != nil || got.ID != s.inside || got.Name != "ann/dev.app" || got.OwnerID != s.owner {
		t.Errorf("admitted: %v, %v", got, err)
	}
	if err := s.svc.MayConnect(t.Context(), s.ann(), s.inside); err != nil {
		t.Errorf("connect: %v", err)
	}
	if err := s.svc.MayConnect(t.Context(), rbac.Actor{UserID: s.other}, s.inside); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another user connects: %v", err)
	}
	for name, want := range map[string]uuid.UUID{"dev": s.agent, "dev.app": s.inside, "dev.main": s.agent} {
		if got, err := s.svc.ByName(t.Context(), s.owner, name); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	if inside, err := s.serving.client(s.inside).Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{AcceptsPending: true})); err != nil ||
		inside.Msg.GetAgentName() != "app" || inside.Msg.GetDirectory() != "/workspaces/app" || len(inside.Msg.GetDevcontainers()) != 0 {
		t.Errorf("manifest of the agent inside: %v, %v", inside, err)
	}
	return first
}

// replaces: a second admission ends the first, and the end of the container ends both.
func (s *subagent) replaces(t *testing.T, first string) {
	t.Helper()
	second, err := s.admit(t, s.rpc, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := <-s.revoked; got != s.inside {
		t.Errorf("off the mesh: %v", got)
	}
	if _, err := s.authenticate(t, first); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("the replaced token: %v", err)
	}
	if err := s.report(t, s.rpc, agentpb.DevcontainerStateRequest_STATE_ERROR, "no engine"); err != nil {
		t.Fatal(err)
	}
	if got := <-s.revoked; got != s.inside {
		t.Errorf("off the mesh: %v", got)
	}
	if _, err := s.authenticate(t, second); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("the token of a container that ended: %v", err)
	}
	var shown sdk.WorkspaceAgent
	if status := get(t, s.url, s.Token("ann"), s.inside.String(), &shown); status != 200 || shown.ParentID == nil || *shown.ParentID != s.agent ||
		shown.Health.Reason != "dev container failed: no engine" || len(shown.Apps) != 1 {
		t.Errorf("agent inside: %d, %+v", status, shown)
	}
}

// ends: an update that keeps the agent keeps the token of the agent inside; the end of the workspace ends it.
func (s *subagent) ends(t *testing.T) {
	t.Helper()
	third, err := s.admit(t, s.rpc, "")
	if err != nil {
		t.Fatal(err)
	}
	s.store(s.build, true, s.with())
	if _, err := s.authenticate(t, third); err != nil {
		t.Errorf("after another report of the build: %v", err)
	}
	s.revoke(s.build.Workspace)
	for _, id := range []uuid.UUID{<-s.revoked, <-s.revoked} {
		if id != s.agent && id != s.inside {
			t.Errorf("off the mesh: %v", id)
		}
	}
	if _, err := s.authenticate(t, third); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("after the workspace stopped: %v", err)
	}
	if _, err := s.admit(t, s.rpc, ""); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("admit after the workspace stopped: %v", err)
	}
	var list sdk.AgentContainers
	if status := get(t, s.url, s.Token("ann"), s.agent.String()+"/containers", &list); status != 200 || list.Devcontainers[0].Status != sdk.DevcontainerStopped {
		t.Errorf("list: %d, %+v", status, list)
	}
}

// TestSubagentsAreTheParents checks that an agent gets tokens for its own dev containers only: not another workspace's, not its own as the
// agent inside, and not as something else.
func TestSubagentsAreTheParents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ann, bob := newNested(t, w, "ann", "dev"), newNested(t, w, "bob", "dev")
	sv := serve(t, agents.New(w.opts))
	own := sv.client(ann.agent)
	if _, err := ann.admit(t, own, "/a"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]agentpbconnect.AgentServiceClient{
		"another workspace's agent": sv.client(bob.agent), "the agent inside": sv.client(ann.inside), "no agent": sv.client(uuid.Nil),
	} {
		if _, err := ann.admit(t, c, "/a"); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s gets a token: %v", name, err)
		}
		if err := ann.report(t, c, agentpb.DevcontainerStateRequest_STATE_STOPPED, ""); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s reports: %v", name, err)
		}
	}
	if w.agent(ann.inside).TokenHash == nil {
		t.Error("the agent inside has lost its token")
	}
	for _, directory := range []string{"relative", "/" + strings.Repeat("x", 2000)} {
		if _, err := ann.admit(t, own, directory); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("directory %.20q: %v", directory, err)
		}
	}
	if err := ann.report(t, own, 77, ""); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("unknown state: %v", err)
	}
	// Bob's template claims ann's dev container and the agent inside: it gets neither.
	thief := &nested{world: w, agent: uuid.New(), container: ann.container, inside: ann.inside}
	thief.build = w.BuildRow(w.WorkspaceRow("bob", "copy"), sdk.TransitionStart, sdk.JobSucceeded)
	w.store(thief.build, true, thief.with())
	if _, err := thief.admit(t, sv.client(thief.agent), ""); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a copied dev container: %v", err)
	}
	if a := w.agent(ann.inside); *a.ParentID != ann.agent || *a.WorkspaceID != ann.build.Workspace {
		t.Errorf("the agent inside moved to %v", a.ParentID)
	}
	// A build without the dev container takes it away.
	w.store(ann.build, true, resource(ann.agent))
	if _, err := ann.admit(t, own, ""); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a dev container that no longer exists: %v", err)
	}
}

// request answers with the status of a request about agents.
func (n *nested) request(t *testing.T, at *url.URL, user, method, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, at.String()+"/api/v2/workspaceagents/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Coder-Session-Token", n.Token(user))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestContainerRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := newNested(t, w, "ann", "dev")
	f := newFakeAgent(t)
	w.opts.Mesh = &fakeMesh{dial: f.dial(n.agent)}
	s := agents.New(w.opts)
	u := w.Serve(s)
	c := serve(t, s).client(n.agent)
	base := n.agent.String() + "/containers"
	ws := dialWS(t, u, w.Token("ann"), base+"/watch")
	next := func() (list sdk.AgentContainers) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := ws.ReadJSON(ctx, &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := next(); len(got.Devcontainers) != 1 || got.Devcontainers[0].Status != sdk.DevcontainerStarting || len(got.Containers) != 0 {
		t.Errorf("first message: %+v", got)
	}
	if _, err := n.admit(t, c, "/workspaces/app"); err != nil {
		t.Fatal(err)
	}
	if err := n.report(t, c, agentpb.DevcontainerStateRequest_STATE_RUNNING, ""); err != nil {
		t.Fatal(err)
	}
	got := next()
	for got.Devcontainers[0].Status != sdk.DevcontainerRunning {
		got = next()
	}
	d := got.Devcontainers[0]
	if d.Container == nil || d.Container.ID != "c0ffee" || !d.Container.Running || d.Agent == nil || d.Agent.ID != n.inside || d.Agent.Directory != "/workspaces/app" ||
		d.SubagentID != n.inside || d.ConfigPath != ".devcontainer.json" || len(got.Containers) != 1 {
		t.Errorf("running: %+v", got)
	}

	one := base + "/devcontainers/" + n.container.String()
	if status := n.request(t, u, "ann", "POST", one+"/recreate"); status != http.StatusConflict {
		t.Errorf("recreate before the agent has started it: %d", status)
	}
	f.changes = make(chan *agentpb.ChangeDevcontainerRequest, 2)
	for _, attack := range []struct {
		user, method, path string
		want               int
	}{
		{"bob", "GET", base, 404}, {"bob", "GET", base + "/watch", 404}, {"bob", "POST", one + "/recreate", 404}, {"bob", "DELETE", one, 404},
		{"ann", "POST", base + "/devcontainers/" + uuid.NewString() + "/recreate", 404},
		{"ann", "DELETE", n.inside.String() + "/containers/devcontainers/" + n.container.String(), 404},
	} {
		if status := n.request(t, u, attack.user, attack.method, attack.path); status != attack.want {
			t.Errorf("%s: %s %s: %d, want %d", attack.user, attack.method, attack.path, status, attack.want)
		}
	}
	if status := n.request(t, u, "ann", "POST", one+"/recreate"); status != http.StatusAccepted {
		t.Errorf("recreate: %d", status)
	}
	if status := n.request(t, u, "ann", "DELETE", one); status != http.StatusNoContent {
		t.Errorf("remove: %d", status)
	}
	for _, want := range []agentpb.ChangeDevcontainerRequest_Change{agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE, agentpb.ChangeDevcontainerRequest_CHANGE_REMOVE} {
		if got := <-f.changes; got.GetChange() != want || uuid.UUID(got.GetDevcontainerId()) != n.container {
			t.Errorf("the agent was asked %v, want %v", got, want)
		}
	}
}
