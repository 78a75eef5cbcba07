package mesh_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/tailnet"
)

// short is how long an attacker's connection may take: a peer that accepts it answers within milliseconds on loopback.
const short = 2 * time.Second

// TestAgentsNeverMeet attempts what a compromised workspace might: reaching another agent, known or not, and the server's
// other ports.
func TestAgentsNeverMeet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	victim := w.joinAgent(t, token)
	victim.Serve(8080, capitals)
	// The server's connection to the victim opens no path to it for the others.
	conn, err := w.DialAgent(t.Context(), id, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	token, own := w.agent()
	thief := w.joinAgent(t, token)
	known := thief.Client.Subscribe(t.Context(), id)
	unknown := thief.Client.Subscribe(t.Context(), uuid.New())
	if fault.CodeOf(known) != fault.NotFound || known.Error() != unknown.Error() {
		t.Errorf("an agent that is there: %v; one that is not: %v; want the same, not_found", known, unknown)
	}
	if conn, err := thief.Dial(id, 8080, short); err == nil {
		conn.Close()
		t.Error("an agent reached another")
	}
	server, err := thief.Client.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{22, 443, 8080, meshport.Terminal, meshport.AgentRPC} {
		if conn, err := thief.Dial(server.ID, port, short/2); err == nil {
			conn.Close()
			t.Errorf("an agent reached port %d of the server", port)
		}
	}
	rpc(t, thief, server.ID)
	if got, ok := w.CallingAgent(tailnet.Addr(own)); !ok || got != own {
		t.Errorf("the caller at the agent's address is %s, %t", got, ok)
	}
}

// rpc calls the server's one open port.
func rpc(t *testing.T, m *coderdtest.Member, server uuid.UUID) {
	t.Helper()
	client := coderdtest.RPCClient(t, func(context.Context, string, string) (net.Conn, error) {
		return m.Dial(server, meshport.ServerRPC, 30*time.Second)
	})
	client.Timeout = 30 * time.Second
	res, err := client.Get("http://server/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "rpc" {
		t.Errorf("RPC: %q, %v", body, err)
	}
}

func TestUsersMeetOwnAgentsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	agent := w.joinAgent(t, token)
	agent.Serve(8080, capitals)
	server, err := agent.Client.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := w.joinUser(t, "ann")
	if err := owner.Client.Subscribe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	conn, err := owner.Dial(id, 8080, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	thief := w.joinUser(t, "bob")
	worker := w.join(t, coderdtest.Joining{Kind: coordinator.KindProvisioner, Header: provisionerHeader("rack-1", psk.Reveal()), Inbound: tailnet.InboundAll}).Joined()
	var answers []string
	for _, target := range []uuid.UUID{id, uuid.New(), server.ID, owner.Node.ID(), worker.Node.ID()} {
		err := thief.Client.Subscribe(t.Context(), target)
		if fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("a stranger sees %s: %v", target, err)
		}
		answers = append(answers, err.Error())
		if conn, err := thief.Dial(target, 8080, short/2); err == nil {
			conn.Close()
			t.Errorf("a stranger reached %s", target)
		}
	}
	for _, a := range answers {
		if a != answers[1] {
			t.Errorf("the answer %q tells what exists; an id that nobody has gives %q", a, answers[1])
		}
	}
	if err := worker.Client.Subscribe(t.Context(), id); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a provisioner sees an agent: %v", err)
	}
	if p, ok := w.CallingProvisioner(worker.Node.Addr()); !ok || p.Name != "rack-1" || p.BuiltIn || p.Tags["scope"] != "organization" {
		t.Errorf("the calling provisioner is %+v, %t", p, ok)
	}
	if _, ok := w.CallingProvisioner(agent.Node.Addr()); ok {
		t.Error("an agent calls as a provisioner")
	}
	if _, ok := w.CallingAgent(worker.Node.Addr()); ok {
		t.Error("a provisioner calls as an agent")
	}

	// Losing the right to connect cuts open connections.
	w.mu.Lock()
	w.refused[ann] = true
	w.mu.Unlock()
	if err := w.Recheck(t.Context(), bob); err != nil {
		t.Fatal(err)
	}
	if err := w.Recheck(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	ends(t, conn)
	<-owner.Client.Done()
	if err := owner.Client.Err(); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a suspended owner: %v", err)
	}
}

// TestNamesOpenNothing checks that a client that names an agent in its hello is introduced to the agent only if it belongs to
// the client's user.
func TestNamesOpenNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	agent := w.joinAgent(t, token)
	for name, own := range map[string]bool{"ann": true, "bob": false, "olga": false} {
		m := w.join(t, coderdtest.Joining{Kind: coordinator.KindClient, Header: http.Header{sdk.SessionHeader: {name}}, Inbound: tailnet.InboundNone, Name: id.String()}).Joined()
		// The server handles the name before it answers this.
		if err := m.Client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("%s: an agent that does not exist: %v", name, err)
		}
		if _, _, known := m.Client.Peer(id); known && !own {
			t.Errorf("%s was introduced to an agent of another user", name)
		}
		if own {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			for known := false; !known; _, _, known = m.Client.Peer(id) {
				if ctx.Err() != nil {
					t.Fatalf("%s was not introduced to the agent that the hello names", name)
				}
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		} else if _, _, known := agent.Client.Peer(m.Node.ID()); known {
			t.Errorf("the agent was introduced to %s", name)
		}
	}
	worker := w.join(t, coderdtest.Joining{Kind: coordinator.KindProvisioner, Header: provisionerHeader("rack-1", psk.Reveal()), Inbound: tailnet.InboundAll, Name: id.String()}).Joined()
	if err := worker.Client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	if _, _, known := worker.Client.Peer(id); known {
		t.Error("a provisioner was introduced to an agent by its name")
	}
}

// TestAgentsCannotTakeOtherIDs checks that an agent that was reported with the id of a provisioner or client keeps neither
// out, because it is refused itself.
func TestAgentsCannotTakeOtherIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	rack := w.join(t, coderdtest.Joining{Kind: coordinator.KindProvisioner, Header: provisionerHeader("rack-1", psk.Reveal()), Inbound: tailnet.InboundNone}).Joined()
	laptop := w.joinUser(t, "ann")
	for name, m := range map[string]*coderdtest.Member{"provisioner": rack, "client": laptop} {
		id := m.Node.ID()
		m.Client.Close() // the victim is offline, so its id is free
		m.Node.Close()
		w.mu.Lock()
		w.agents["thief"], w.owners[id] = id, bob
		w.mu.Unlock()
		if got := w.join(t, coderdtest.Joining{Kind: coordinator.KindAgent, Header: http.Header{sdk.AgentTokenHeader: {"thief"}}, Inbound: tailnet.InboundNone}).Refusal(); got != fault.Forbidden {
			t.Errorf("an agent with the id of a %s: %q, want %q", name, got, fault.Forbidden)
		}
	}
	w.join(t, coderdtest.Joining{Kind: coordinator.KindProvisioner, Header: provisionerHeader("rack-1", psk.Reveal()), Inbound: tailnet.InboundNone}).Joined()
	token, _ := w.agent()
	w.joinAgent(t, token)
}

// TestEndedSession checks that what one session of a user opened ends with it, and that what another session opened remains.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	w.joinAgent(t, token).Serve(8080, capitals)
	open := func(session string) (*coderdtest.Member, net.Conn) {
		m := w.joinUser(t, session)
		if err := m.Client.Subscribe(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		conn, err := m.Dial(id, 8080, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return m, conn
	}
	stolen, cut := open("ann")
	owner, kept := open("ann again")
	w.mu.Lock()
	w.ended["ann"] = true
	w.mu.Unlock()
	// Even before a recheck, an ended session opens nothing new.
	if err := stolen.Client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a new subscription with an ended session: %v", err)
	}
	if err := w.Recheck(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	ends(t, cut)
	<-stolen.Client.Done()
	if err := stolen.Client.Err(); fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "session has ended") {
		t.Errorf("the client was told %v", err)
	}
	converse(t, kept)
	conn, err := owner.Dial(id, 8080, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	user := func(name string, more http.Header) http.Header {
		h := http.Header{sdk.SessionHeader: {name}}
		for key, values := range more {
			h[key] = values
		}
		return h
	}
	scoped := http.Header{sdk.ProvisionerNameHeader: {"mine"}, sdk.ProvisionerTagsHeader: {url.Values{"scope": {"user"}}.Encode()}}
	scopedByKey := scoped.Clone()
	scopedByKey.Set(sdk.ProvisionerPSKHeader, psk.Reveal())
	for name, c := range map[string]struct {
		kind   coordinator.Kind
		header http.Header
		want   fault.Code // empty means accepted
	}{
		"nothing":                           {coordinator.KindClient, http.Header{}, fault.Unauthenticated},
		"a wrong agent token":               {coordinator.KindAgent, http.Header{sdk.AgentTokenHeader: {"guess"}}, fault.Unauthenticated},
		"a user's token as an agent's":      {coordinator.KindAgent, http.Header{sdk.AgentTokenHeader: {"ann"}}, fault.Unauthenticated},
		"a wrong user token":                {coordinator.KindClient, user("guess", nil), fault.Unauthenticated},
		"a browser's cookie":                {coordinator.KindClient, http.Header{"Cookie": {"coder_session_token=ann"}}, fault.Unauthenticated},
		"a wrong pre-shared key":            {coordinator.KindProvisioner, provisionerHeader("rack-1", "guess"), fault.Unauthenticated},
		"a provisioner's name with spaces":  {coordinator.KindProvisioner, provisionerHeader("rack 1", psk.Reveal()), fault.Invalid},
		"a member's shared provisioner":     {coordinator.KindProvisioner, user("ann", http.Header{sdk.ProvisionerNameHeader: {"p"}}), fault.Forbidden},
		"a member's own provisioner":        {coordinator.KindProvisioner, user("ann", scoped), ""},
		"a template admin's provisioner":    {coordinator.KindProvisioner, user("tom", http.Header{sdk.ProvisionerNameHeader: {"p"}}), ""},
		"somebody's provisioner with a key": {coordinator.KindProvisioner, scopedByKey, fault.Invalid},
		"the built-in one's":                {coordinator.KindProvisioner, w.BuiltInHeader("builtin-0"), ""},
		"the pre-shared key":                {coordinator.KindProvisioner, provisionerHeader("rack-2", psk.Reveal()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := w.join(t, coderdtest.Joining{Kind: c.kind, Header: c.header, Inbound: tailnet.InboundNone})
			if c.want == "" {
				m.Joined()
			} else if got := m.Refusal(); got != c.want {
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
}
