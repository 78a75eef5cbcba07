package coordinator_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestIntroduceAcross(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		a.announce(2)
		cl.expect(two, "peer agent 1 #2")
		cl.announce(3)
		a.expect(two, "peer client 1 #3")
		cl.unsubscribe(agent(1).ID)
		a.expect(two, "gone client 1")
		cl.expect(two, "gone agent 1", "unsubscribed agent 1")
		a.announce(3)
		cl.expect(two)
		cl.subscribe(agent(1).ID)
		cl.expect(two, "peer agent 1 #3")
		a.expect(two, "peer client 1 #3")
		cl.bye()
		a.expect(two, "gone client 1")
		for i, s := range c.servers {
			if st := s.Stats(); st.Online != 1-i || st.Tunnels != 0 { // the agent counts where it is connected
				t.Errorf("server %d: %+v", i, st)
			}
			if !s.Online(agent(1).ID) {
				t.Errorf("server %d does not know the agent", i)
			}
		}
	})
}

// TestSubscriptionWaitsAcross checks that a subscription to an agent that is not connected anywhere is met when it connects somewhere.
func TestSubscriptionWaitsAcross(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		cl := connect(t, c.servers[1], laptop(1), key(1), agent(1).ID)
		cl.announce(1)
		cl.expect(two, "welcome")
		a := connect(t, c.servers[2], agent(1), key(100))
		a.announce(1)
		a.expect(two, "welcome", "peer client 1 #1")
		cl.expect(two, "peer agent 1 #1")
	})
}

func TestLostAcross(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		a.cut()
		cl.expect(two, "lost agent 1")
		time.Sleep(time.Minute)
		a = connect(t, c.servers[0], agent(1), key(100))
		a.expect(two, "welcome", "peer client 1 #1")
		cl.expect(two, "peer agent 1 #1")
		a.cut()
		cl.expect(two, "lost agent 1")
		time.Sleep(coordinator.DefaultLostTimeout - time.Second)
		cl.expect(two)
		time.Sleep(time.Second)
		cl.expect(two, "gone agent 1")
	})
}

func TestRevokeAcross(t *testing.T) {
	relays := []*relayLog{{}, {}, {}}
	bubble(t, 3, func(i int, opts *coordinator.Options) { opts.Relay = relays[i] }, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		for i, r := range relays {
			if !r.has(key(100)) || !r.has(key(1)) {
				t.Fatalf("relay %d does not admit participants of other servers", i)
			}
		}
		c.servers[0].Revoke(agent(1).ID, "over")
		a.expect(two, "error forbidden")
		cl.expect(two, "refused agent 1: forbidden", "gone agent 1")
		for i, r := range relays {
			if r.has(key(100)) {
				t.Errorf("relay %d still admits the revoked key", i)
			}
		}
		if _, ok := c.servers[2].Lookup(tailnet.Addr(agent(1).ID)); ok {
			t.Error("the third server still knows the agent")
		}
	})
}

// TestRecheckAcross checks that a subscription ends when the client's server withdraws it.
func TestRecheckAcross(t *testing.T) {
	rules := &policy{}
	bubble(t, 2, func(_ int, opts *coordinator.Options) { opts.Authorizer = rules }, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		rules.set(laptop(1).ID, agent(1).ID, true)
		if err := c.servers[1].Recheck(context.Background(), laptop(1).ID); err != nil {
			t.Fatal(err)
		}
		a.expect(two, "gone client 1")
		cl.expect(two, "refused agent 1: not_found", "gone agent 1")
	})
}

// TestOrphansAreRechecked checks that no subscription outlives a revocation because the server that granted it ended first.
func TestOrphansAreRechecked(t *testing.T) {
	rules := &policy{}
	bubble(t, 2, func(_ int, opts *coordinator.Options) { opts.Authorizer = rules }, func(t *testing.T, c *cluster) {
		a, _ := across(t, c)
		rules.set(laptop(1).ID, agent(1).ID, true)
		c.cut(0, 1)
		got := names(a.messages(), two...)
		if len(got) > 0 && got[0] == "lost client 1" { // the agent may learn that first
			got = got[1:]
		}
		if !slices.Equal(got, []string{"gone client 1"}) {
			t.Errorf("the agent got %q, want the end of the client", got)
		}
	})
}

// TestHeldAcross checks that an agent keeps a client that is connected to another server.
func TestHeldAcross(t *testing.T) {
	bubble(t, 3, func(_ int, opts *coordinator.Options) { opts.Passes = plainPasses{} }, func(t *testing.T, c *cluster) {
		a, cl := across2(t, c)
		pass := a
		a0 := connect(t, c.servers[2], agent(1), key(100))
		a0.say(protocol.ClientMessage{Restore: &protocol.Restore{
			Peers: []protocol.PeerPass{{ID: laptop(1).ID, Key: key(1), Pass: pass}},
		}})
		if got := names(a0.messages(), two...); slices.Contains(got, "gone client 1") || !slices.Contains(got, "peer client 1 #1") {
			t.Fatalf("the agent got %q", got)
		}
		cl.expect(two)
	})
}

// TestWorkersSeeTheirServer checks that workers see the server that they are connected to, and others only when these ask.
func TestWorkersSeeTheirServer(t *testing.T) {
	all := []coordinator.Principal{agent(1), server(0), server(1)}
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		zero := connect(t, c.servers[0], server(0), key(50))
		zero.announce(1)
		one := connect(t, c.servers[1], server(1), key(51))
		one.announce(1)
		synctest.Wait() // both have joined
		a := connect(t, c.servers[0], agent(1), key(100))
		a.announce(1)
		zero.expect(all, "welcome", "peer agent 1 #1")
		one.expect(all, "welcome")
		m := a.messages()
		if w := m[0].Welcome; w == nil || !slices.Equal(w.Servers, []uuid.UUID{server(0).ID}) {
			t.Fatalf("the welcome names %v", m[0].Welcome)
		}
		one.subscribe(agent(1).ID)
		one.expect(all, "peer agent 1 #1")
		a.expect(all, "peer server 1 #1")

		// The agent moves to the second server: the first no longer sees it.
		moved := connect(t, c.servers[1], agent(1), key(100))
		moved.expect(all, "welcome", "peer server 1 #1")
		zero.expect(all, "gone agent 1")
	})
}

// TestPunchAcross checks that nodes behind NATs at two servers learn each other's endpoints at the same moment.
func TestPunchAcross(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a := connect(t, c.servers[0], agent(1), key(100))
		b := connect(t, c.servers[1], laptop(1), key(1), agent(1).ID)
		for i, w := range []*wire{a, b} {
			n := info(w.p, w.key, 1)
			n.Endpoints[0] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 1)
			n.Mapped, n.Measured = n.Endpoints[0], true
			w.say(protocol.ClientMessage{Node: &n})
			synctest.Wait()
		}
		for _, w := range []*wire{a, b} {
			got := names(w.messages(), two...)
			if last := got[len(got)-1]; last != "peer client 1 #1" && last != "peer agent 1 #1" {
				t.Errorf("%s got %q, want the endpoints last", w.p.Name, got)
			}
		}
	})
}

// TestWorkerCallsItsServer checks that a worker that moves calls the server that it is connected to, even while another one sees it.
func TestWorkerCallsItsServer(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		var nodes []*wire
		for i, s := range c.servers {
			n := connect(t, s, server(i), key(uint64(50+i)))
			n.announce(1)
			nodes = append(nodes, n)
		}
		synctest.Wait()
		d := &door{p: agent(1), server: c.servers[0]}
		p := join(t, protocol.KindAgent, key(100), client.Options{Dial: d.dial})
		calls := func() uuid.UUID {
			synctest.Wait()
			n, err := p.Server(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return n.ID
		}
		if got := calls(); got != server(0).ID {
			t.Fatalf("calls %s, want the first server", got)
		}
		synctest.Wait()
		nodes[1].subscribe(agent(1).ID)
		if got := calls(); got != server(0).ID {
			t.Fatalf("calls %s, which was introduced later but does not lead to its coordinator", got)
		}
		nodes[0].subscribe(agent(1).ID)
		synctest.Wait()
		replaced := make(chan error, 1)
		go func() { replaced <- p.Replaced(t.Context(), server(0).ID) }()
		d.set(c.servers[1], nil)
		d.cut()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-replaced:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatal("the worker stays with a server that it is no longer connected to")
		}
		if got := calls(); got != server(1).ID {
			t.Fatalf("calls %s, want the second server", got)
		}
		p.Close()
	})
}

// TestPendingSubscriptionStaysWithItsServer checks that a server forgets its participant that is gone, although others wait for it elsewhere.
func TestPendingSubscriptionStaysWithItsServer(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		a.bye()
		cl.expect(two, "gone agent 1")
		for i, want := range []int{0, 1, 0} {
			if got := c.servers[i].Stats().Tunnels; got != want {
				t.Errorf("server %d keeps %d tunnels, want %d", i, got, want)
			}
		}
		again := connect(t, c.servers[2], agent(1), key(100))
		again.announce(2)
		cl.expect(two, "peer agent 1 #2")
	})
}
