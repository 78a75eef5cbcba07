package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func regionProxy(k tailnet.PublicKey) coordinator.Principal {
	return coordinator.Principal{Kind: protocol.KindProxy, ID: tailnet.ClientID(k), Name: "proxy", Subject: uuid.New()}
}

// An agent that does not know region proxies is never introduced to one, whichever comes first.
func TestProxiesAndEarlierAgents(t *testing.T) {
	t.Parallel()
	for _, version := range []int{protocol.Version - 1, protocol.Version} {
		for _, first := range []string{"agent", "proxy"} {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{})
				p := regionProxy(key(1))
				all := []coordinator.Principal{agent(1), p}
				joinAgent := func() *wire {
					a := greet(t, s, agent(1), protocol.Hello{Version: version, Key: key(100)})
					a.announce(1)
					return a
				}
				joinProxy := func() *wire {
					c := greet(t, s, p, protocol.Hello{Version: protocol.Version, Key: key(1)})
					c.announce(1)
					c.subscribe(agent(1).ID)
					synctest.Wait()
					return c
				}
				var a, c *wire
				if first == "agent" {
					a, c = joinAgent(), joinProxy()
				} else {
					c, a = joinProxy(), joinAgent()
				}
				synctest.Wait()
				if version == protocol.Version {
					c.expect(all, "welcome", "peer agent 1 #1")
					a.expect(all, "welcome", "peer proxy #1")
					return
				}
				c.expect(all, "welcome", "refused agent 1: not_found")
				a.expect(all, "welcome")
			})
		}
	}
}

// A proxy reaches agents only, and only those that the Authorizer grants it.
func TestProxiesSeeAgentsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		granted := agent(1).ID
		s := newServer(t, coordinator.Options{Authorizer: coordinator.AuthorizerFunc(func(_ context.Context, from coordinator.Principal, to coordinator.Target) error {
			if from.Kind == protocol.KindProxy && to.ID != granted {
				return fault.New(fault.NotFound, "no visa")
			}
			return nil
		})})
		p := regionProxy(key(1))
		all := []coordinator.Principal{agent(1), agent(2), laptop(2), p}
		for i, other := range all[:3] {
			w := greet(t, s, other, protocol.Hello{Version: protocol.Version, Key: []tailnet.PublicKey{key(100), key(101), key(2)}[i]})
			w.announce(1)
		}
		c := greet(t, s, p, protocol.Hello{Version: protocol.Version, Key: key(1)})
		c.announce(1)
		for _, other := range all[:3] {
			c.subscribe(other.ID)
			synctest.Wait()
		}
		c.expect(all, "welcome", "peer agent 1 #1", "refused agent 2: not_found", "refused client 2: not_found")
		// The visit ends.
		granted = uuid.Nil
		if err := s.Recheck(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.expect(all, "refused agent 1: not_found", "gone agent 1")
	})
}
