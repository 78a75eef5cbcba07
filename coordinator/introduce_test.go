package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

var two = []coordinator.Principal{agent(1), laptop(1)}

// pair returns an agent and a client that were introduced to each other and have read everything.
func pair(t *testing.T, s *coordinator.Server) (a, c *wire) {
	t.Helper()
	a = connect(t, s, agent(1), key(100))
	a.announce(1)
	c = connect(t, s, laptop(1), key(1), agent(1).ID)
	c.announce(1)
	a.expect(two, "welcome", "peer client 1 #1")
	c.expect(two, "welcome", "peer agent 1 #1")
	return a, c
}

// TestInitiatorLearnsAfterReady checks that a destination of an earlier version is introduced first.
func TestInitiatorLearnsAfterReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := connectAsked(t, s, agent(1), key(100))
		a.announce(1)
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		c.announce(1)
		a.expect(two, "welcome", "peer client 1 #1 ack")
		c.expect(two, "welcome")
		a.ready(laptop(1).ID)
		c.expect(two, "peer agent 1 #1")
		a.expect(two)
		if n := s.Stats().ReadyTimeouts; n != 0 {
			t.Fatalf("%d ready timeouts, want 0", n)
		}
	})
}

func TestWelcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{LostTimeout: time.Minute})
		connect(t, s, server(1), key(50)).messages()
		a := connect(t, s, agent(1), key(100))
		m := a.messages()
		if len(m) != 1 || m[0].Welcome == nil {
			t.Fatalf("got %q, want a welcome", names(m))
		}
		w := m[0].Welcome
		if w.ID != agent(1).ID || w.Version != protocol.Version || w.Grace() != time.Minute ||
			len(w.Relays.Regions) != 1 || len(w.Servers) != 1 || w.Servers[0] != server(1).ID {
			t.Fatalf("welcome is %+v", w)
		}
	})
}

func TestInitiatorDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := connectAsked(t, s, agent(1), key(100))
		a.announce(1)
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		c.announce(1)
		a.expect(two, "welcome", "peer client 1 #1 ack")
		time.Sleep(coordinator.DefaultReadyTimeout - time.Millisecond)
		c.expect(two, "welcome")
		time.Sleep(time.Millisecond)
		c.expect(two, "peer agent 1 #1")
		if n := s.Stats().ReadyTimeouts; n != 1 {
			t.Fatalf("%d ready timeouts, want 1", n)
		}
	})
}

func TestSubscriptionWaitsForDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		c := connect(t, s, laptop(1), key(1))
		c.announce(1)
		c.subscribe(agent(1).ID)
		c.expect(two, "welcome")
		time.Sleep(time.Hour)
		c.expect(two)
		a := connect(t, s, agent(1), key(100))
		a.expect(two, "welcome", "peer client 1 #1")
		c.expect(two) // the agent has no home relay yet
		a.announce(5)
		c.expect(two, "peer agent 1 #5")
	})
}

func TestNodeWithoutHomeRelayIsNotIntroduced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := connect(t, s, agent(1), key(100))
		a.announce(1)
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		for _, r := range []int{0, 99} {
			n := info(c.p, c.key, 1)
			n.Region = r
			c.say(protocol.ClientMessage{Node: &n})
		}
		a.expect(two, "welcome")
		c.announce(2)
		a.expect(two, "peer client 1 #2")
	})
}

func TestChangesReachPartnersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a, c := pair(t, s)
		b := connect(t, s, laptop(2), key(2))
		b.announce(1)
		b.expect(two, "welcome")
		a.announce(2)
		c.expect(two, "peer agent 1 #2")
		c.announce(3)
		a.expect(two, "peer client 1 #3")
		b.expect(two)
		c.unsubscribe(agent(1).ID)
		a.expect(two, "gone client 1")
		c.expect(two, "gone agent 1", "unsubscribed agent 1")
		a.announce(3)
		c.expect(two)
	})
}

func TestWorkersSeeEveryServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := []coordinator.Principal{agent(1), server(1), server(2)}
		s := newServer(t, coordinator.Options{})
		one := connect(t, s, server(1), key(50))
		one.announce(1)
		a := connect(t, s, agent(1), key(100))
		a.announce(1)
		one.expect(all, "welcome", "peer agent 1 #1")
		a.expect(all, "welcome", "peer server 1 #1")

		second := connect(t, s, server(2), key(51))
		second.announce(1)
		second.expect(all, "welcome", "peer agent 1 #1")
		a.expect(all, "peer server 2 #1")
	})
}

func TestLostPeerIsKeptThenGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{LostTimeout: 15 * time.Minute})
		a, c := pair(t, s)
		a.cut()
		c.expect(two, "lost agent 1")
		if _, ok := s.Lookup(tailnet.Addr(agent(1).ID)); !ok {
			t.Fatal("a lost peer is not found by its address")
		}
		time.Sleep(15*time.Minute - time.Second)
		c.expect(two)
		time.Sleep(time.Second)
		c.expect(two, "gone agent 1")
		if p, ok := s.Lookup(tailnet.Addr(agent(1).ID)); ok {
			t.Fatalf("%s is still found by its address", p.Name)
		}

		// The subscription remains for the next participant.
		a = connect(t, s, agent(1), key(101))
		a.announce(1)
		a.expect(two, "welcome", "peer client 1 #1")
		c.expect(two, "peer agent 1 #1")
	})
}

func TestResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a, c := pair(t, s)
		c.cut()
		a.expect(two, "lost client 1")
		a.announce(2) // missed by the client
		time.Sleep(10 * time.Minute)
		c = connect(t, s, laptop(1), key(1))
		c.expect(two, "welcome", "peer agent 1 #2")
		a.expect(two, "peer client 1 #1")
		c.announce(7)
		a.expect(two, "peer client 1 #7")
		time.Sleep(time.Hour)
		c.expect(two)
		a.expect(two)
	})
}

func TestGoneWhileAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a, c := pair(t, s)
		a.cut()
		c.bye()
		synctest.Wait()
		a = connect(t, s, agent(1), key(100))
		a.expect(two, "welcome", "gone client 1")
	})
}

func TestRestartedAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		relay := &relayLog{}
		s := newServer(t, coordinator.Options{Relay: relay})
		a, c := pair(t, s)
		again := connect(t, s, agent(1), key(101))
		a.expect(two, "error unavailable")
		again.expect(two, "welcome", "peer client 1 #1")
		c.expect(two, "gone agent 1")
		again.announce(1)
		m := c.messages()
		if len(m) != 1 || m[0].Peer == nil || m[0].Peer.Info.Key != key(101) {
			t.Fatalf("client got %q, want the agent with its new key", names(m, two...))
		}
		if relay.has(key(100)) || !relay.has(key(101)) {
			t.Fatal("the relay still admits the old key, or not the new one")
		}
	})
}

func TestByeIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		relay := &relayLog{}
		s := newServer(t, coordinator.Options{Relay: relay})
		a, c := pair(t, s)
		c.bye()
		a.expect(two, "gone client 1")
		if relay.has(key(1)) {
			t.Fatal("the relay still admits the key")
		}
		if st := s.Stats(); st.Online != 1 || st.Lost != 0 || st.Tunnels != 0 {
			t.Fatalf("stats are %+v", st)
		}
		if err := c.err; err == nil {
			t.Fatal("the connection is still open")
		}
	})
}

func TestRelayMapAndNotice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := connect(t, s, agent(1), key(100))
		a.expect(two, "welcome")
		s.RelayMapChanged()
		s.Notify(protocol.Notice{Kind: protocol.NoticeDrain, Message: "back soon"})
		a.expect(two, "relay 1", "notice drain")
		s.Close()
		a.expect(two, "error unavailable")
	})
}
