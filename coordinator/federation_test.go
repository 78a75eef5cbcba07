package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// across returns an agent at the first server and a client at the second that were introduced to each other and have read everything.
func across(t *testing.T, c *cluster) (a, cl *wire) {
	t.Helper()
	a = connect(t, c.servers[0], agent(1), key(100))
	a.announce(1)
	synctest.Wait()
	cl = connect(t, c.servers[1], laptop(1), key(1), agent(1).ID)
	cl.announce(1)
	a.expect(two, "welcome", "peer client 1 #1")
	cl.expect(two, "welcome", "peer agent 1 #1")
	return a, cl
}

// TestLinks checks what each server reports about its links.
func TestLinks(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		began := time.Now()
		across(t, c)
		links := c.servers[0].Links()
		if len(links) != 2 {
			t.Fatalf("links %+v, want two", links)
		}
		for _, l := range links {
			if l.Server != c.ids[1] && l.Server != c.ids[2] || !l.Since.Equal(began) || l.Sent == 0 || l.Received == 0 || l.RTT != 0 {
				t.Errorf("link %+v", l)
			}
		}
		c.cut(0, 1)
		synctest.Wait()
		if links = c.servers[0].Links(); len(links) != 1 || links[0].Server != c.ids[2] {
			t.Errorf("links after one was cut: %+v", links)
		}
		time.Sleep(time.Second)
		c.join(0, 1)
		synctest.Wait()
		for _, l := range c.servers[0].Links() {
			if again := l.Server == c.ids[1]; again != l.Since.Equal(began.Add(time.Second)) {
				t.Errorf("after one was made again: %+v", l)
			}
		}
	})
}

// slowLink is an end of a link that takes a while to answer pings.
type slowLink struct {
	*linkEnd
	delay atomic.Int64
}

func (l *slowLink) Ping(context.Context) error {
	time.Sleep(time.Duration(l.delay.Load()))
	return nil
}

// TestLinkRTT checks that a link's round trip is measured as long as the link exists.
func TestLinkRTT(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *cluster) {
		out, in := make(chan []byte, 64), make(chan []byte, 64)
		in <- []byte(`{"hello":{"version":1}}`)
		conn := &slowLink{linkEnd: &linkEnd{in: in, out: out, once: new(sync.Once), closed: make(chan struct{})}}
		for _, rtt := range []time.Duration{3 * time.Millisecond, 7 * time.Millisecond} {
			conn.delay.Store(int64(rtt))
			if rtt == 3*time.Millisecond {
				c.running.Go(func() { c.servers[0].Link(context.Background(), id("process", 9), conn) })
			}
			time.Sleep(20 * time.Second)
			if links := c.servers[0].Links(); len(links) != 1 || links[0].RTT != rtt {
				t.Errorf("links %+v, want one with a round trip of %s", links, rtt)
			}
		}
	})
}

// TestMove checks that partners notice nothing but the return of a participant that connects to another server.
func TestMove(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		moved := connect(t, c.servers[2], agent(1), key(100))
		moved.expect(two, "welcome", "peer client 1 #1")
		a.expect(two, "error unavailable")
		cl.expect(two)
		moved.announce(2)
		cl.expect(two, "peer agent 1 #2")

		// The client moves, too. It asks again, as clients do.
		again := connect(t, c.servers[0], laptop(1), key(1), agent(1).ID)
		again.expect(two, "welcome", "peer agent 1 #2")
		cl.expect(two, "error unavailable")
		moved.expect(two)
		again.announce(5)
		moved.expect(two, "peer client 1 #5")
		for i, s := range c.servers {
			if n := len(s.Peers()); n != 2 {
				t.Errorf("server %d lists %d participants, want 2", i, n)
			}
			if want := map[int]int{0: 1, 2: 1}[i]; s.Stats().Tunnels != want {
				t.Errorf("server %d has %d tunnels, want %d", i, s.Stats().Tunnels, want)
			}
		}
	})
}

// TestMoveWhileAway checks that a client that gave up a subscription between two connections, to different servers, ends the tunnel.
func TestMoveWhileAway(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		cl.cut()
		a.expect(two, "lost client 1")
		again := connect(t, c.servers[2], laptop(1), key(1))
		again.announce(1)
		a.expect(two, "peer client 1 #1")
		again.expect(two, "welcome")
		again.unsubscribe(agent(1).ID)
		again.expect(two, "unsubscribed agent 1")
		a.expect(two, "gone client 1")
	})
}

func TestRestartedAgentAcross(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		again := connect(t, c.servers[1], agent(1), key(101))
		again.announce(1)
		again.expect(two, "welcome", "peer client 1 #1")
		a.expect(two, "error unavailable")
		cl.expect(two, "gone agent 1", "peer agent 1 #1")
	})
}

// TestSkewedClocks checks that the latest connection wins, even if the earlier server's clock is ahead.
func TestSkewedClocks(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, _ := across(t, c)
		for i := range 6 {
			moved := connect(t, c.servers[(i+1)%2], agent(1), key(100))
			a.expect(two, "error unavailable")
			if got := names(moved.messages(), two...); len(got) == 0 || got[0] != "welcome" || slices.Contains(got, "error unavailable") {
				t.Fatalf("move %d: got %q", i, got)
			}
			a = moved
		}
	})
}

func TestBrokenLink(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		c.cut(0, 1)
		a.expect(two, "lost client 1")
		cl.expect(two, "lost agent 1")
		a.announce(2)
		time.Sleep(time.Minute)
		a.expect(two)
		cl.expect(two)
		c.join(0, 1)
		a.expect(two, "peer client 1 #1")
		cl.expect(two, "peer agent 1 #2")

		c.cut(0, 1)
		a.expect(two, "lost client 1")
		cl.expect(two, "lost agent 1")
		cl.unsubscribe(agent(1).ID)
		cl.expect(two, "gone agent 1", "unsubscribed agent 1")
		c.join(0, 1)
		// The link announces the client before it is synced, so the agent may hear in between that the client is back.
		if got := strings.Join(names(a.messages(), two...), ", "); got != "gone client 1" && got != "peer client 1 #1, gone client 1" {
			t.Fatalf("agent 1 got %s", got)
		}

		cl.subscribe(agent(1).ID)
		a.expect(two, "peer client 1 #1")
		cl.expect(two, "peer agent 1 #2")
		c.cut(0, 1)
		cl.messages()
		a.bye()
		synctest.Wait()
		c.join(0, 1)
		cl.expect(two, "gone agent 1")
	})
}

// TestBrokenLinkStaysBroken checks that a participant of a server that does not return is gone after the grace.
func TestBrokenLinkStaysBroken(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		_, cl := across(t, c)
		c.cut(0, 1)
		cl.expect(two, "lost agent 1")
		time.Sleep(coordinator.DefaultLostTimeout)
		cl.expect(two, "gone agent 1")
		c.join(0, 1)
		cl.expect(two, "peer agent 1 #1")
	})
}

// TestLostTwice checks that a participant that returned and was lost again while a link was broken stays as long as its server keeps it.
func TestLostTwice(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		connect(t, c.servers[0], laptop(1), key(1)).cut()
		synctest.Wait()
		time.Sleep(coordinator.DefaultLostTimeout - time.Minute)
		c.cut(0, 1)
		synctest.Wait()
		connect(t, c.servers[0], laptop(1), key(1)).cut()
		synctest.Wait()
		c.join(0, 1)
		check := func(known bool) {
			t.Helper()
			synctest.Wait()
			for i, s := range c.servers {
				if _, ok := s.Lookup(tailnet.Addr(laptop(1).ID)); ok != known {
					t.Errorf("server %d: the client is found by its address: %v", i, ok)
				}
			}
		}
		time.Sleep(coordinator.DefaultLostTimeout - time.Second)
		check(true)
		time.Sleep(2 * time.Second)
		check(false)
	})
}

// TestKilledServer checks that the participants of a killed server continue at another one. Neither partner is told that the other is gone.
func TestKilledServer(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		c.cut(0, 1)
		c.cut(0, 2)
		cl.expect(two, "lost agent 1")
		a.conn.Close(1001, "")
		again := connect(t, c.servers[2], agent(1), key(100))
		again.announce(1)
		again.expect(two, "welcome", "peer client 1 #1")
		cl.expect(two, "peer agent 1 #1")
		c.replace(0, coordinator.Options{ID: id("process", 7)})
		cl.expect(two)
		again.expect(two)
		c.cut(1, 2) // both return to the new server while the others are apart
		cl2 := connect(t, c.servers[0], laptop(1), key(1), agent(1).ID)
		cl2.announce(2)
		cl2.expect(two, "welcome", "peer agent 1 #1")
		if got := names(again.messages(), two...); slices.Contains(got, "gone client 1") {
			t.Fatalf("agent got %q", got)
		}
	})
}

// TestKeyAcross checks that a key is bound to one principal at all servers.
func TestKeyAcross(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		_, err := c.servers[1].Dialer(agent(2))(t.Context(), protocol.Hello{Version: protocol.Version, Key: key(100)})
		if fault.CodeOf(err) != fault.Conflict {
			t.Fatalf("another agent with the key: %v, want a conflict", err)
		}
		stranger := laptop(1)
		stranger.Subject = id("user", 99)
		_, err = c.servers[0].Dialer(stranger)(t.Context(), protocol.Hello{Version: protocol.Version, Key: key(1)})
		if fault.CodeOf(err) != fault.Conflict {
			t.Fatalf("another user with the client's key: %v, want a conflict", err)
		}
		a.expect(two)
		cl.expect(two)
	})
}

// TestSameKeyAtOnce checks that two principals that present one key to two servers without a link never both exist at one.
func TestSameKeyAtOnce(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		c.cut(0, 1)
		synctest.Wait()
		connect(t, c.servers[0], agent(1), key(100)).announce(1)
		connect(t, c.servers[1], agent(2), key(100)).announce(1)
		c.join(0, 1)
		synctest.Wait()
		for i, s := range c.servers {
			if n := len(s.Peers()); n != 1 {
				t.Errorf("server %d lists %d participants with one key", i, n)
			}
		}
	})
}

// answering is a connection whose other end answers pings, or not.
type answering struct {
	protocol.Conn
	silent bool
}

func (c *answering) Ping(ctx context.Context) error {
	if c.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func TestDuplicateAcross(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		client, server := newPipeForTest()
		conn := &answering{Conn: server}
		go c.servers[0].Serve(context.Background(), conn, agent(1), protocol.Hello{Version: protocol.Version, Key: key(100)})
		first := newWire(t, client, agent(1), key(100))
		first.expect(two, "welcome")
		second := connect(t, c.servers[1], agent(1), key(101))
		second.expect(two, "error unavailable")
		first.expect(two)
		for i, s := range c.servers {
			if !s.Contested(agent(1).ID) {
				t.Errorf("server %d does not report the two agents", i)
			}
		}
		conn.silent = true
		third := connect(t, c.servers[1], agent(1), key(102))
		time.Sleep(10 * time.Second)
		third.expect(two, "welcome")
		first.expect(two, "error unavailable")
	})
}

// newPipeForTest returns the ends of a connection inside the process.
func newPipeForTest() (client, server protocol.Conn) {
	a, b := make(chan []byte, 64), make(chan []byte, 64)
	once, closed := new(sync.Once), make(chan struct{})
	return &linkEnd{a, b, once, closed, nil}, &linkEnd{b, a, once, closed, nil}
}

// across2 is across for agents that receive passes. It returns the client's pass.
func across2(t *testing.T, c *cluster) (pass string, cl *wire) {
	t.Helper()
	a := connect(t, c.servers[0], agent(1), key(100))
	a.announce(1)
	synctest.Wait()
	cl = connect(t, c.servers[1], laptop(1), key(1), agent(1).ID)
	cl.announce(1)
	for _, m := range a.messages() {
		if m.Pass != nil {
			pass = m.Pass.Pass
		}
	}
	if pass == "" {
		t.Fatal("the agent received no pass of another server's client")
	}
	cl.expect(two, "welcome", "peer agent 1 #1")
	return pass, cl
}

// plainPasses are passes that anyone can make, for tests.
type plainPasses struct{}

func (plainPasses) Issue(p coordinator.Principal) (string, error) { return encoded(p), nil }

func (plainPasses) Redeem(_ string) (p coordinator.Principal, err error) {
	return p, errors.New("not needed")
}

// TestTraffic counts what a change costs on links.
func TestTraffic(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		synctest.Wait()
		c.traffic.take()
		a := connect(t, c.servers[0], agent(1), key(100))
		a.messages()
		if n, _, log := c.traffic.take(); n != 2 {
			t.Errorf("a connection costs %d messages to two servers, want 2: %+v", n, log)
		}
		a.announce(1)
		a.messages()
		if n, _, log := c.traffic.take(); n != 2 {
			t.Errorf("an announcement costs %d messages to two servers, want 2: %+v", n, log)
		}
		cl := connect(t, c.servers[1], laptop(1), key(1))
		cl.announce(1)
		cl.messages()
		c.traffic.take()
		cl.subscribe(agent(1).ID)
		cl.messages()
		if n, _, log := c.traffic.take(); n != 1 {
			t.Errorf("a subscription costs %d messages, want 1: %+v", n, log)
		}
		cl.unsubscribe(agent(1).ID)
		cl.messages()
		if n, _, log := c.traffic.take(); n != 1 {
			t.Errorf("its end costs %d messages, want 1: %+v", n, log)
		}
	})
}

// TestOwnerWithoutALink checks that a server believes who announces a participant, even with an earlier stamp, while it has no link to the
// server that had it: that one cannot report the end, and its clock may have been ahead.
func TestOwnerWithoutALink(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		connect(t, c.servers[0], agent(1), key(100)).messages()
		a := connect(t, c.servers[0], agent(1), key(100)) // its stamp is ahead of the clock, which stands still here
		a.messages()
		c.cut(0, 1)
		synctest.Wait()
		a.bye()
		synctest.Wait()
		connect(t, c.servers[2], agent(1), key(100)).messages()
		if peers := c.servers[1].Peers(); len(peers) != 1 || !peers[0].Online || peers[0].Server != c.ids[2] {
			t.Fatalf("the second server lists %+v", peers)
		}
	})
}
