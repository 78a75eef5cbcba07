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

	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/tailnet"
)

// short is how long an attacker's connection is given: a peer that lets it in answers within milliseconds on loopback.
const short = 2 * time.Second

// TestAgentsNeverMeet tries what a compromised workspace may try: another agent, known or not, and the server's other ports.
func TestAgentsNeverMeet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	victim := w.joinAgent(t, token)
	victim.echo(8080)
	// The server's connection to the victim opens nothing to the others.
	conn, err := w.DialAgent(t.Context(), id, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	token, own := w.agent()
	thief := w.joinAgent(t, token)
	known := thief.client.Subscribe(t.Context(), id)
	unknown := thief.client.Subscribe(t.Context(), uuid.New())
	if fault.CodeOf(known) != fault.NotFound || known.Error() != unknown.Error() {
		t.Errorf("an agent that is there: %v; one that is not: %v; want the same, not_found", known, unknown)
	}
	if conn, err := thief.dial(id, 8080, short); err == nil {
		conn.Close()
		t.Error("an agent reached another")
	}
	server, err := thief.client.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{22, 443, 8080, meshport.Terminal, meshport.AgentRPC} {
		if conn, err := thief.dial(server.ID, port, short/2); err == nil {
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
func rpc(t *testing.T, m *member, server uuid.UUID) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return m.dial(server, meshport.ServerRPC, 30*time.Second)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get("http://server/")
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
	agent.echo(8080)
	server, err := agent.client.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := w.joinUser(t, "ann")
	if err := owner.client.Subscribe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	conn, err := owner.dial(id, 8080, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	thief := w.joinUser(t, "bob")
	worker := w.join(t, coordinator.KindProvisioner, provisionerHeader("rack-1", psk.Reveal()), tailnet.InboundAll).joined()
	var answers []string
	for _, target := range []uuid.UUID{id, uuid.New(), server.ID, owner.node.ID(), worker.node.ID()} {
		err := thief.client.Subscribe(t.Context(), target)
		if fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("a stranger sees %s: %v", target, err)
		}
		answers = append(answers, err.Error())
		if conn, err := thief.dial(target, 8080, short/2); err == nil {
			conn.Close()
			t.Errorf("a stranger reached %s", target)
		}
	}
	for _, a := range answers {
		if a != answers[1] {
			t.Errorf("the answer %q tells what exists; an id that nobody has gives %q", a, answers[1])
		}
	}
	if err := worker.client.Subscribe(t.Context(), id); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a provisioner sees an agent: %v", err)
	}
	if p, ok := w.CallingProvisioner(worker.node.Addr()); !ok || p.Name != "rack-1" || p.BuiltIn || p.Tags["scope"] != "organization" {
		t.Errorf("the calling provisioner is %+v, %t", p, ok)
	}
	if _, ok := w.CallingProvisioner(agent.node.Addr()); ok {
		t.Error("an agent calls as a provisioner")
	}
	if _, ok := w.CallingAgent(worker.node.Addr()); ok {
		t.Error("a provisioner calls as an agent")
	}

	// Losing the right cuts what is open.
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
	<-owner.client.Done()
	if err := owner.client.Err(); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a suspended owner: %v", err)
	}
}

// TestNamesOpenNothing: who names an agent in the hello is introduced to it if it is the user's own, and only then.
func TestNamesOpenNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	agent := w.joinAgent(t, token)
	for name, own := range map[string]bool{"ann": true, "bob": false, "olga": false} {
		m := w.joinNaming(t, coordinator.KindClient, http.Header{sdk.SessionHeader: {name}}, tailnet.InboundNone, id.String()).joined()
		// The name is looked at before this is.
		if err := m.client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("%s: an agent that does not exist: %v", name, err)
		}
		if _, _, known := m.client.Peer(id); known && !own {
			t.Errorf("%s was introduced to an agent of another user", name)
		}
		if own {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			for known := false; !known; _, _, known = m.client.Peer(id) {
				if ctx.Err() != nil {
					t.Fatalf("%s was not introduced to the agent that the hello names", name)
				}
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		} else if _, _, known := agent.client.Peer(m.node.ID()); known {
			t.Errorf("the agent was introduced to %s", name)
		}
	}
	worker := w.joinNaming(t, coordinator.KindProvisioner, provisionerHeader("rack-1", psk.Reveal()), tailnet.InboundAll, id.String()).joined()
	if err := worker.client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	if _, _, known := worker.client.Peer(id); known {
		t.Error("a provisioner was introduced to an agent by its name")
	}
}

// TestAgentsCannotTakeOtherIDs: an agent that was reported with the id of a provisioner or client keeps neither out, because it is
// not let in itself.
func TestAgentsCannotTakeOtherIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	rack := w.join(t, coordinator.KindProvisioner, provisionerHeader("rack-1", psk.Reveal()), tailnet.InboundNone).joined()
	laptop := w.joinUser(t, "ann")
	for name, m := range map[string]*member{"provisioner": rack, "client": laptop} {
		id := m.node.ID()
		m.client.Close() // the victim is away, and the id is free
		m.node.Close()
		w.mu.Lock()
		w.agents["thief"], w.owners[id] = id, bob
		w.mu.Unlock()
		if got := w.join(t, coordinator.KindAgent, http.Header{sdk.AgentTokenHeader: {"thief"}}, tailnet.InboundNone).refusal(); got != fault.Forbidden {
			t.Errorf("an agent with the id of a %s: %q, want %q", name, got, fault.Forbidden)
		}
	}
	w.join(t, coordinator.KindProvisioner, provisionerHeader("rack-1", psk.Reveal()), tailnet.InboundNone).joined()
	token, _ := w.agent()
	w.joinAgent(t, token)
}

// TestEndedSession: what one session of a user opened ends with it, and what another opened stays.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	w.joinAgent(t, token).echo(8080)
	open := func(session string) (*member, net.Conn) {
		m := w.joinUser(t, session)
		if err := m.client.Subscribe(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		conn, err := m.dial(id, 8080, 30*time.Second)
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
	// Before anybody says so: nothing new.
	if err := stolen.client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a new subscription with an ended session: %v", err)
	}
	if err := w.Recheck(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	ends(t, cut)
	<-stolen.client.Done()
	if err := stolen.client.Err(); fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "session has ended") {
		t.Errorf("the client was told %v", err)
	}
	converse(t, kept)
	conn, err := owner.dial(id, 8080, 30*time.Second)
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
		want   fault.Code // empty: let in
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
			m := w.join(t, c.kind, c.header, tailnet.InboundNone)
			if c.want == "" {
				m.joined()
			} else if got := m.refusal(); got != c.want {
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
}
