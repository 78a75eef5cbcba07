package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/sshmux"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// participant is a mesh participant that does not run our program.
type participant struct {
	node   *tailnet.Node
	client *client.Client
}

// joinMesh makes a participant join the mesh with its credential. If the server refuses it, the error is the refusal.
func joinMesh(t *testing.T, d *deployment, kind protocol.Kind, header, credential string) (*participant, error) {
	t.Helper()
	server, err := url.Parse(d.url())
	if err != nil {
		t.Fatal(err)
	}
	p := new(participant)
	key := tailnet.NewPrivateKey()
	p.client = client.New(client.Options{
		URL: server, Kind: kind, Key: key.Public(), Inbound: func(protocol.Kind) tailnet.Inbound { return tailnet.InboundAll },
		Header: func(context.Context) (http.Header, error) { return http.Header{header: {credential}}, nil },
		NewNode: func(w protocol.Welcome) (client.Node, error) {
			node, err := tailnet.New(tailnet.Options{ID: w.ID, Key: key})
			if err != nil {
				return nil, err
			}
			p.node = node
			t.Cleanup(func() { node.Close() })
			return node, nil
		},
	})
	p.client.Start()
	t.Cleanup(func() { p.client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), settle)
	defer cancel()
	_, err = p.client.Welcome(ctx)
	return p, err
}

// session connects to the session port of a mesh address, and returns when it answers.
func (p *participant) session(ctx context.Context, id uuid.UUID) (*sshmux.Conn, error) {
	raw, err := p.node.Dial(ctx, "tcp", netip.AddrPortFrom(tailnet.Addr(id), meshport.Session))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn := sshmux.New(raw, sshmux.Options{})
	if _, _, err := conn.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// silent fails the test if a mesh address answers the participant within two seconds. A connection to its own would take a few
// hundredths of that.
func (p *participant) silent(t *testing.T, id uuid.UUID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if conn, err := p.session(ctx, id); err == nil {
		conn.Close()
		t.Errorf("%s answered", id)
	}
}

// refused fails the test unless the coordinator refuses to introduce the participant to id.
func (p *participant) refused(t *testing.T, id uuid.UUID) (reason error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settle)
	defer cancel()
	err := p.client.Subscribe(ctx, id)
	if code := fault.CodeOf(err); err == nil || code != fault.NotFound && code != fault.Forbidden {
		t.Errorf("subscribe to %s: got %v, want a refusal", id, err)
	}
	if _, _, ok := p.client.Peer(id); ok {
		t.Errorf("%s was introduced", id)
	}
	return err
}

func parseID(t *testing.T, text string) uuid.UUID {
	t.Helper()
	id, err := uuid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// agentToken returns the token of a workspace's agent, as its build made it. No process's environment has it.
func (d *deployment) agentToken(w workspaceJSON) string {
	d.t.Helper()
	for _, pid := range d.agents() {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			d.t.Fatal(err)
		}
		for variable := range bytes.SplitSeq(environ, []byte{0}) {
			if token, ok := strings.CutPrefix(string(variable), "CODER_AGENT_TOKEN="); ok && token != "" {
				d.t.Errorf("the environment of agent %d has its token", pid)
			}
		}
	}
	var state struct {
		Resources []struct {
			Type      string `json:"type"`
			Instances []struct {
				Attributes struct {
					Token string `json:"token"`
				} `json:"attributes"`
			} `json:"instances"`
		} `json:"resources"`
	}
	d.get("/api/v2/workspacebuilds/"+w.LatestBuild.ID+"/state", &state)
	for _, r := range state.Resources {
		if r.Type == "coder_agent" && len(r.Instances) > 0 {
			return r.Instances[0].Attributes.Token
		}
	}
	d.t.Fatalf("the state of workspace %s has no agent", w.ID)
	return ""
}

// TestPeersAreIsolated: a client reaches only its owner's workspaces, and an agent does not reach other agents, neither by asking the
// coordinator nor by knowing everything that an introduction would contain.
func TestPeersAreIsolated(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	eve := d.member("eve")
	d.coder("create", "dev", "-t", "process", "-y")
	d.coder("ssh", "dev", "--", "true")
	if _, stderr, err := d.tryAs("eve", "create", "own", "-t", "process", "-y"); err != nil {
		t.Fatalf("eve creates a workspace: %v\n%s", err, stderr)
	}
	if _, stderr, err := d.tryAs("eve", "ssh", "own", "--", "true"); err != nil {
		t.Fatalf("eve uses her workspace: %v\n%s", err, stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), settle)
	defer cancel()
	dev := parseID(t, d.workspace("dev").agentID())
	var own workspaceJSON
	if err := call(http.MethodGet, d.url()+"/api/v2/users/me/workspace/own", eve, nil, &own); err != nil {
		t.Fatal(err)
	}

	// Ada reaches her workspace, so the following attempts fail only because of who asks.
	ada, err := joinMesh(t, d, protocol.KindClient, sdk.SessionHeader, d.token)
	if err != nil {
		t.Fatal(err)
	}
	if err := ada.client.Subscribe(ctx, dev); err != nil {
		t.Fatal(err)
	}
	conn, err := ada.session(ctx, dev)
	if err != nil {
		t.Fatalf("ada's workspace does not answer: %v", err)
	}
	conn.Close()
	devNode, _, ok := ada.client.Peer(dev)
	if !ok {
		t.Fatal("ada does not know the peer that she talks to")
	}

	strangerIsRefused(t, d, eve, devNode)
	token := rogueIsRefused(t, d, own, devNode)

	// The silence is not due to a missing responder.
	if conn, err = ada.session(ctx, dev); err != nil {
		t.Fatalf("ada's workspace does not answer afterwards: %v", err)
	}
	conn.Close()

	tokensAreNotExchanged(t, d, token)
}

// strangerIsRefused joins with a session of a user who has no right to a workspace.
func strangerIsRefused(t *testing.T, d *deployment, session string, devNode tailnet.NodeInfo) {
	t.Helper()
	dev := devNode.ID
	stranger, err := joinMesh(t, d, protocol.KindClient, sdk.SessionHeader, session)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := stranger.refused(t, dev), stranger.refused(t, uuid.New()); got == nil || want == nil || got.Error() != want.Error() {
		t.Errorf("subscribe to what is another's: %v, to what does not exist: %v; want the same", got, want)
	}
	stranger.silent(t, dev)
	// The stranger has everything that the coordinator would send: key, addresses, relay.
	if err := stranger.node.Upsert(tailnet.Peer{NodeInfo: devNode}); err != nil {
		t.Fatal(err)
	}
	stranger.silent(t, dev)
}

// rogueIsRefused uses one agent's token in ways that no agent does. It returns the token.
func rogueIsRefused(t *testing.T, d *deployment, own workspaceJSON, devNode tailnet.NodeInfo) (token string) {
	t.Helper()
	dev := devNode.ID
	token = d.agentToken(own)
	// The real agent must be silent, or the server refuses the second.
	for _, pid := range d.agents() {
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && bytes.Contains(environ, []byte(own.ID)) {
			signal(t, pid, syscall.SIGSTOP)
		}
	}
	rogue, err := joinMesh(t, d, protocol.KindAgent, sdk.AgentTokenHeader, token)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rogue.node.ID(), parseID(t, own.agentID()); got != want {
		t.Fatalf("eve's agent's token joins as %s, want %s", got, want)
	}
	rogue.refused(t, dev)
	rogue.silent(t, dev)
	if err := rogue.node.Upsert(tailnet.Peer{NodeInfo: devNode}); err != nil {
		t.Fatal(err)
	}
	rogue.silent(t, dev)
	return token
}

// tokensAreNotExchanged: an agent's token does not work as a user's session, nor vice versa.
func tokensAreNotExchanged(t *testing.T, d *deployment, token string) {
	t.Helper()
	for _, path := range []string{"/api/v2/users/me", "/api/v2/workspaces"} {
		if err := call(http.MethodGet, d.url()+path, token, nil, nil); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("GET %s with an agent's token: got %v, want 401", path, err)
		}
	}
	for what, credential := range map[string][2]string{
		"a session as an agent":    {sdk.AgentTokenHeader, d.token},
		"a made-up agent token":    {sdk.AgentTokenHeader, uuid.NewString()},
		"a made-up session":        {sdk.SessionHeader, "aaaaaaaaaa-aaaaaaaaaaaaaaaaaaaaaa"},
		"an agent's as a session":  {sdk.SessionHeader, token},
		"nothing that is a secret": {"X-Nothing", "at all"},
	} {
		if _, err := joinMesh(t, d, protocol.KindClient, credential[0], credential[1]); fault.CodeOf(err) != fault.Unauthenticated || err == nil {
			t.Errorf("join with %s: got %v, want a refusal", what, err)
		}
	}
}

// TestSuspensionEndsSessions checks that losing access ends open connections: a suspended user's session in the workspace, and the
// tunnel of a client.
func TestSuspensionEndsSessions(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	token := d.member("eve")
	if _, stderr, err := d.tryAs("eve", "create", "own", "-t", "process", "-y"); err != nil {
		t.Fatalf("eve creates a workspace: %v\n%s", err, stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	defer cancel()
	session := d.commandAs(ctx, "eve", "ssh", "own", "--", "echo in; cat")
	stdin, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 3)
	if _, err := stdout.Read(line); err != nil || string(line) != "in\n" {
		t.Fatalf("eve's session: got %q (%v)", line, err)
	}
	var own workspaceJSON
	if err := call(http.MethodGet, d.url()+"/api/v2/users/me/workspace/own", token, nil, &own); err != nil {
		t.Fatal(err)
	}
	agent := parseID(t, own.agentID())
	client, err := joinMesh(t, d, protocol.KindClient, sdk.SessionHeader, token)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.client.Subscribe(ctx, agent); err != nil {
		t.Fatal(err)
	}
	conn, err := client.session(ctx, agent)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	d.coder("users", "suspend", "eve", "-y")
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("eve's session ended with success")
		}
	case <-time.After(settle):
		t.Errorf("eve's session is open %s after she was suspended", settle)
		session.Process.Kill()
		<-ended
	}
	over := make(chan error, 1)
	go func() { over <- conn.Wait() }()
	select {
	case <-over:
	case <-time.After(settle):
		t.Errorf("a connection of eve's is open %s after she was suspended", settle)
	}
	if _, err := joinMesh(t, d, protocol.KindClient, sdk.SessionHeader, token); err == nil {
		t.Error("eve joined the mesh after she was suspended")
	}
}
