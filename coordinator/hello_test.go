package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// book resolves the name "mine" to the first agent.
func book(_ context.Context, from coordinator.Principal, name string) (uuid.UUID, error) {
	if name != "mine" || from.Kind != protocol.KindClient {
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
		n := info(laptop(1), key(1), 7)
		c := greet(t, s, laptop(1), protocol.Hello{Version: protocol.Version, Key: key(1), Node: &n, Name: "mine"})
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
		"not allowed": {"mine", protocol.Version, true}, "unknown": {"other", protocol.Version, false},
		"an earlier version": {"mine", versionAsked, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rules := &policy{}
				rules.set(laptop(1).ID, agent(1).ID, c.denied)
				s := newServer(t, coordinator.Options{Resolve: book, Authorizer: rules})
				a := connect(t, s, agent(1), key(100))
				a.announce(1)
				n := info(laptop(1), key(1), 1)
				w := greet(t, s, laptop(1), protocol.Hello{Version: c.version, Key: key(1), Node: &n, Name: c.name})
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
		for what, n := range map[string]tailnet.NodeInfo{"id": info(agent(1), key(1), 1), "key": info(laptop(1), key(2), 1)} {
			w := greet(t, s, laptop(1), protocol.Hello{Version: protocol.Version, Key: key(1), Node: &n})
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
	for name, version := range map[string]int{"now": protocol.Version, "an earlier server": versionAsked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{Resolve: book})
				a := connect(t, s, agent(1), key(100))
				a.announce(1)
				door := &gated{door: door{p: laptop(1), server: s}, version: version}
				node := newFakeNode(laptop(1).ID, key(1))
				if err := node.SetRelayMap(relayMap(), nil); err != nil {
					t.Fatal(err)
				}
				c := join(t, protocol.KindClient, key(1), client.Options{
					Dial: door.dial, Name: "mine", Early: func() client.Node { return node },
					NewNode: func(protocol.Welcome) (client.Node, error) { return node, nil },
				})
				synctest.Wait()
				_, known := node.peer(agent(1).ID)
				if known != (version == protocol.Version) {
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
