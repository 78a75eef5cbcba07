package coordinator_test

import (
	"context"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// book resolves the name "mine" to the first agent.
func book(_ context.Context, from coordinator.Principal, name string) (uuid.UUID, error) {
	if name != "mine" || from.Kind != coordinator.KindClient {
		return uuid.Nil, fault.New(fault.NotFound, "no such name")
	}
	return agent(1).ID, nil
}

// TestIntroducedByHello checks that the welcome and the introduction come together for a hello that announces the node and names the
// agent.
func TestIntroducedByHello(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{Resolve: book})
		a := connect(t, s, agent(1), key(100))
		a.announce(1)
		a.expect(two, "welcome")
		n := info(client(1), key(1), 7)
		c := greet(t, s, client(1), coordinator.Hello{Version: coordinator.Version, Key: key(1), Node: &n, Name: "mine"})
		c.expect(two, "welcome", "peer agent 1 #1")
		a.expect(two, "peer client 1 #7")

		c.subscribe(agent(1).ID) // by its id, as soon as the client knows it
		c.expect(two)
		c.unsubscribe(agent(1).ID)
		c.expect(two, "gone agent 1", "unsubscribed agent 1")
		a.expect(two, "gone client 1")
	})
}

// TestNameIsAHint checks that the Authorizer decides about a name, and that no answer reveals whether the named participant exists.
func TestNameIsAHint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		name    string
		version int
		denied  bool
	}{
		"not allowed": {"mine", coordinator.Version, true}, "unknown": {"other", coordinator.Version, false},
		"an earlier version": {"mine", versionAsked, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rules := &policy{}
				rules.set(client(1).ID, agent(1).ID, c.denied)
				s := newServer(t, coordinator.Options{Resolve: book, Authorizer: rules})
				a := connect(t, s, agent(1), key(100))
				a.announce(1)
				n := info(client(1), key(1), 1)
				w := greet(t, s, client(1), coordinator.Hello{Version: c.version, Key: key(1), Node: &n, Name: c.name})
				w.announce(1)
				w.expect(two, "welcome")
				a.expect(two, "welcome")
			})
		})
	}
}

// TestHelloOfAnother checks that a hello cannot announce another participant's node.
func TestHelloOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		for what, n := range map[string]tailnet.NodeInfo{"id": info(agent(1), key(1), 1), "key": info(client(1), key(2), 1)} {
			w := greet(t, s, client(1), coordinator.Hello{Version: coordinator.Version, Key: key(1), Node: &n})
			if got := names(w.messages()); len(got) == 0 || got[len(got)-1] != "error forbidden" {
				t.Errorf("another's %s: got %q", what, got)
			}
		}
	})
}

// TestEarlyNode checks that a client whose node exists announces it in the hello, or after the welcome if the server does not read it
// from the hello.
func TestEarlyNode(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]int{"now": coordinator.Version, "an earlier server": versionAsked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{Resolve: book})
				a := connect(t, s, agent(1), key(100))
				a.announce(1)
				door := &gated{door: door{p: client(1), server: s}, version: version}
				node := newFakeNode(client(1).ID, key(1))
				if err := node.SetRelayMap(relayMap(), nil); err != nil {
					t.Fatal(err)
				}
				c := join(t, coordinator.KindClient, key(1), coordinator.ClientOptions{
					Dial: door.dial, Name: "mine", Early: func() coordinator.Node { return node },
					NewNode: func(coordinator.Welcome) (coordinator.Node, error) { return node, nil },
				})
				synctest.Wait()
				_, known := node.peer(agent(1).ID)
				if known != (version == coordinator.Version) {
					t.Errorf("the client was introduced by name: %v", known)
				}
				if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
					t.Fatal(err)
				}
				if _, known := node.peer(agent(1).ID); !known {
					t.Error("the client does not know the agent")
				}
			})
		})
	}
}

func TestHelloRoundTrip(t *testing.T) {
	t.Parallel()
	n := info(client(1), key(1), 3)
	r := httptest.NewRequest("GET", coordinator.Path+"?v=4&key="+key(1).String()+"&name=ada%2Fdev.main", nil)
	r.Header.Set(coordinator.NodeHeader, encoded(n))
	h, err := coordinator.ParseHello(r)
	if err != nil || h.Name != "ada/dev.main" || h.Node == nil || h.Node.Seq != 3 || h.Node.Endpoints[0] != n.Endpoints[0] {
		t.Fatalf("got %+v, %v", h, err)
	}
	many := n
	for i := range coordinator.MaxEndpoints {
		many.Endpoints = append(many.Endpoints, netip.AddrPortFrom(netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678"), uint16(i+1)))
	}
	for what, text := range map[string]string{
		"no JSON": "x", "an unknown field": `{"id":"` + n.ID.String() + `","more":1}`, "two values": encoded(n) + encoded(n),
		"no key": `{"id":"` + n.ID.String() + `"}`, "too many endpoints": encoded(many), "too long": strings.Repeat(" ", coordinator.MaxHelloNode) + encoded(n),
	} {
		r.Header.Set(coordinator.NodeHeader, text)
		if _, err := coordinator.ParseHello(r); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want a fault of the one who asked", what, err)
		}
	}
	r.Header.Del(coordinator.NodeHeader)
	for what, name := range map[string]string{"long": strings.Repeat("x", coordinator.MaxName+1), "no text": "%ff"} {
		r.URL.RawQuery = "v=4&key=" + key(1).String() + "&name=" + name
		if _, err := coordinator.ParseHello(r); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("a name that is %s: got %v", what, err)
		}
	}
}
