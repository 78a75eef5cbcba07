package mesh_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// short is how long an attacker's connection may take: a peer that accepts it answers within milliseconds on loopback.
const short = 2 * time.Second

// TestAgentsNeverMeet attempts what a compromised workspace might: reaching another agent, known or not, and the server's
// other ports.
func TestAgentsNeverMeet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	victim, id := w.joinAgent(t)
	victim.Serve(8080, capitals)
	// The server's connection to the victim opens no path to it for the others.
	defer w.dial(t, id).Close()
	_, own := w.RunningRow("bob", "dev")
	thief := w.Join(coderdtest.AsAgent(coderdtest.Token(own).Reveal()))
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
		return m.Dial(server, meshport.ServerRPC, coderdtest.Patience)
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
	agent, id := w.joinAgent(t)
	agent.Serve(8080, capitals)
	server, err := agent.Client.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := w.joinUser(t, "ann")
	if err := owner.Client.Subscribe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	conn, err := owner.Dial(id, 8080, coderdtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	thief := w.joinUser(t, "bob")
	worker := w.joinRack(t, tailnet.InboundAll)
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
			t.Errorf("the answer %q tells what exists; an id that does not exist gives %q", a, answers[1])
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
	w.Exec(`UPDATE users SET status = 'suspended' WHERE username = 'ann'`)
	if err := w.Recheck(t.Context(), w.User("bob")); err != nil {
		t.Fatal(err)
	}
	if err := w.Recheck(t.Context(), w.User("ann")); err != nil {
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
	agent, id := w.joinAgent(t)
	for name, own := range map[string]bool{"ann": true, "bob": false, "olga": false} {
		as := coderdtest.AsUser(w.Token(name))
		as.Name = "ann/dev"
		m := w.Join(as)
		// The server handles the name before it answers this.
		if err := m.Client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("%s: an agent that does not exist: %v", name, err)
		}
		if _, _, known := m.Client.Peer(id); known && !own {
			t.Errorf("%s was introduced to an agent of another user", name)
		}
		if own {
			testwait.Until(t, "ann is introduced to the agent that the hello names", func() error {
				_, _, known := m.Client.Peer(id)
				return testwait.Unless(known, "ann does not know the agent")
			})
		} else if _, _, known := agent.Client.Peer(m.Node.ID()); known {
			t.Errorf("the agent was introduced to %s", name)
		}
	}
	worker := w.Join(coderdtest.Joining{Kind: protocol.KindProvisioner, Header: coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()), Inbound: tailnet.InboundAll, Name: "ann/dev"})
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
	rack := w.joinRack(t, tailnet.InboundNone)
	laptop := w.joinUser(t, "ann")
	for name, m := range map[string]*coderdtest.Member{"provisioner": rack, "client": laptop} {
		id := m.Node.ID()
		m.Client.Close() // the victim is offline, so its id is free
		m.Node.Close()
		_, thief := w.RunningRow("bob", name)
		w.Exec(`UPDATE workspace_agents SET id = $2 WHERE id = $1`, thief, id)
		if got := coderdtest.Join(t, w.URL, coderdtest.AsAgent(coderdtest.Token(thief).Reveal())).Refusal(); got != fault.Forbidden {
			t.Errorf("an agent with the id of a %s: %q, want %q", name, got, fault.Forbidden)
		}
	}
	w.joinRack(t, tailnet.InboundNone)
	w.joinAgent(t)
}

// TestEndedSession checks that what one session of a user opened ends with it, and that what another session opened remains.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	agent, id := w.joinAgent(t)
	agent.Serve(8080, capitals)
	open := func(session secret.Token) (*coderdtest.Member, net.Conn) {
		m := w.Join(coderdtest.AsUser(session.Reveal()))
		if err := m.Client.Subscribe(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		conn, err := m.Dial(id, 8080, coderdtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return m, conn
	}
	session := w.Session("ann")
	stolen, cut := open(session)
	owner, kept := open(w.Session("ann"))
	w.Exec(`DELETE FROM api_keys WHERE id = $1`, session.Reveal()[:10])
	// Even before a recheck, an ended session opens nothing new.
	if err := stolen.Client.Subscribe(t.Context(), uuid.New()); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("a new subscription with an ended session: %v", err)
	}
	if err := w.Recheck(t.Context(), w.User("ann")); err != nil {
		t.Fatal(err)
	}
	ends(t, cut)
	<-stolen.Client.Done()
	if err := stolen.Client.Err(); fault.CodeOf(err) != fault.Forbidden || !strings.Contains(err.Error(), "session has ended") {
		t.Errorf("the client was told %v", err)
	}
	converse(t, kept)
	conn, err := owner.Dial(id, 8080, coderdtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestTooManyClients checks that a user who connects without end keeps nothing from other users, and comes back once a connection has ended.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 3
	w.MostClients(most)
	w.start(t)
	var clients []*coderdtest.Member
	for range most {
		m := w.joinUser(t, "ann")
		m.Joined()
		clients = append(clients, m)
	}
	refused := func() error {
		u := w.URL.JoinPath(protocol.Path)
		u.RawQuery = url.Values{"v": {strconv.Itoa(protocol.Version)}, "key": {tailnet.NewPrivateKey().Public().String()}}.Encode()
		conn, err := websock.Dial(t.Context(), u, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {w.Token("ann")}}})
		if err == nil {
			conn.Close(websock.StatusNormal, "")
		}
		return err
	}
	if err := refused(); fault.CodeOf(err) != fault.RateLimited || !strings.Contains(err.Error(), "3 connections") {
		t.Errorf("one connection more: %v", err)
	}
	w.joinUser(t, "tom").Joined()
	agent, _ := w.joinAgent(t)
	agent.Joined()
	clients[0].Client.Close()
	testwait.Until(t, "ann connects again", refused)
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	user := func(token string, more http.Header) http.Header {
		h := http.Header{sdk.SessionHeader: {token}}
		for key, values := range more {
			h[key] = values
		}
		return h
	}
	scoped := http.Header{sdk.ProvisionerNameHeader: {"mine"}, sdk.ProvisionerTagsHeader: {url.Values{"scope": {"user"}}.Encode()}}
	scopedByKey := scoped.Clone()
	scopedByKey.Set(sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal())
	for name, c := range map[string]struct {
		kind   protocol.Kind
		header http.Header
		want   fault.Code // empty means accepted
	}{
		"nothing":                          {protocol.KindClient, http.Header{}, fault.Unauthenticated},
		"a wrong agent token":              {protocol.KindAgent, http.Header{sdk.AgentTokenHeader: {"guess"}}, fault.Unauthenticated},
		"a user's token as an agent's":     {protocol.KindAgent, http.Header{sdk.AgentTokenHeader: {w.Token("ann")}}, fault.Unauthenticated},
		"a wrong user token":               {protocol.KindClient, user("guess", nil), fault.Unauthenticated},
		"a browser's cookie":               {protocol.KindClient, http.Header{"Cookie": {"coder_session_token=" + w.Token("ann")}}, fault.Unauthenticated},
		"a wrong pre-shared key":           {protocol.KindProvisioner, coderdtest.ProvisionerHeader("rack-1", sdk.ProvisionerPSKHeader, "guess"), fault.Unauthenticated},
		"a provisioner's name with spaces": {protocol.KindProvisioner, coderdtest.ProvisionerHeader("rack 1", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()), fault.Invalid},
		"a member's shared provisioner":    {protocol.KindProvisioner, user(w.Token("ann"), http.Header{sdk.ProvisionerNameHeader: {"p"}}), fault.Forbidden},
		"a member's own provisioner":       {protocol.KindProvisioner, user(w.Token("ann"), scoped), ""},
		"a template admin's provisioner":   {protocol.KindProvisioner, user(w.Token("tom"), http.Header{sdk.ProvisionerNameHeader: {"p"}}), ""},
		"a user's provisioner with a key":  {protocol.KindProvisioner, scopedByKey, fault.Invalid},
		"the built-in one's":               {protocol.KindProvisioner, w.BuiltInHeader("builtin-0"), ""},
		"the pre-shared key":               {protocol.KindProvisioner, coderdtest.ProvisionerHeader("rack-2", sdk.ProvisionerPSKHeader, coderdtest.PSK.Reveal()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := coderdtest.Join(t, w.URL, coderdtest.Joining{Kind: c.kind, Header: c.header, Inbound: tailnet.InboundNone})
			if c.want == "" {
				m.Joined()
			} else if got := m.Refusal(); got != c.want {
				t.Errorf("refused with %q, want %q", got, c.want)
			}
		})
	}
}

// TestBusyServer checks that a busy server asks agents to return, while people and provisioners join, and that it tells
// strangers nothing of its load.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	_, id := w.RunningRow("ann", "dev")
	empty := w.FillJoins()
	ask := func(token string) *http.Response {
		t.Helper()
		u := w.URL.JoinPath(protocol.Path)
		key := tailnet.NewPrivateKey().Public().String()
		u.RawQuery = url.Values{"v": {strconv.Itoa(protocol.Version)}, "key": {key}}.Encode()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sdk.AgentTokenHeader, token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	res := ask(coderdtest.Token(id).Reveal())
	body, err := io.ReadAll(res.Body)
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	busy := res.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body), fault.Busy)
	if err != nil || !busy || seconds < 1 {
		t.Errorf("an agent is answered %s with Retry-After %d: %s, %v", res.Status, seconds, body, err)
	}
	if res := ask("11111111-1111-4111-8111-111111111111"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger is answered %s", res.Status)
	}
	w.joinUser(t, "ann")
	w.joinRack(t, tailnet.InboundNone)
	empty()
	w.Join(coderdtest.AsAgent(coderdtest.Token(id).Reveal())) // it waits for its welcome
}
