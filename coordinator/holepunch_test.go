package coordinator_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// slow is one end of a connection between distant places.
type slow struct {
	way  time.Duration // one way
	peer *slow
	out  chan late
	in   chan []byte

	once sync.Once
	done chan struct{}
}

// late is a message in transit.
type late struct {
	at   time.Time
	data []byte
}

var errSlowClosed = errors.New("closed")

func newSlow(way time.Duration) (client, server *slow) {
	end := func() *slow {
		return &slow{way: way, out: make(chan late, 100), in: make(chan []byte, 100), done: make(chan struct{})}
	}
	client, server = end(), end()
	client.peer, server.peer = server, client
	return client, server
}

// carry delivers what was written, in order.
func (f *slow) carry() {
	for {
		select {
		case m := <-f.out:
			select {
			case <-time.After(time.Until(m.at)):
				f.peer.in <- m.data
			case <-f.done:
				return
			}
		case <-f.done:
			return
		}
	}
}

func (f *slow) Read(ctx context.Context) ([]byte, error) {
	select {
	case data := <-f.in:
		return data, nil
	case <-f.done:
	case <-f.peer.done:
	case <-ctx.Done():
	}
	return nil, errSlowClosed
}

func (f *slow) Write(_ context.Context, data []byte) error {
	f.out <- late{time.Now().Add(f.way), data}
	return nil
}

func (f *slow) Ping(context.Context) error {
	time.Sleep(2 * f.way)
	return nil
}

func (f *slow) Close(websock.Status, string) error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// connectSlow is connect over such a connection.
func connectSlow(t *testing.T, s *coordinator.Server, p coordinator.Principal, k uint64, way time.Duration) *wire {
	client, server := newSlow(way)
	var serving sync.WaitGroup
	serving.Go(client.carry)
	serving.Go(server.carry)
	serving.Go(func() {
		s.Serve(context.Background(), server, p, protocol.Hello{Version: protocol.Version, Key: key(k)})
	})
	t.Cleanup(serving.Wait)
	return newWire(t, client, p, key(k))
}

// behind announces a node behind a NAT with the given outside address. If nat is empty, the node does not know its address yet.
func (w *wire) behind(seq uint64, nat string, moves uint64) {
	n := info(w.p, w.key, seq)
	n.Moves, n.Measured = moves, nat != ""
	if nat != "" {
		n.Mapped = netip.AddrPortFrom(netip.MustParseAddr(nat), 1)
		n.Endpoints = append(n.Endpoints, n.Mapped)
	}
	w.say(protocol.ClientMessage{Node: &n})
}

const (
	natA = "198.51.100.1"
	natC = "203.0.113.1"
)

// TestPunchAtOneTime: the first packets of two nodes behind NATs cross, because both receive each other's endpoints at
// the same time, however far they are.
func TestPunchAtOneTime(t *testing.T) {
	t.Parallel()
	for name, ways := range map[string][2]time.Duration{
		"agent further": {80 * time.Millisecond, 10 * time.Millisecond}, "client further": {time.Millisecond, 200 * time.Millisecond},
		"alike": {30 * time.Millisecond, 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{})
				a := connectSlow(t, s, agent(1), 100, ways[0])
				c := connectSlow(t, s, laptop(1), 1, ways[1])
				a.behind(1, natA, 0)
				c.behind(1, "", 0)
				time.Sleep(2 * time.Second)
				c.subscribe(agent(1).ID)
				time.Sleep(2 * time.Second)
				a.expect(two, "welcome", "peer client 1 #1 apart")
				time.Sleep(2 * time.Second)
				c.expect(two, "welcome", "peer agent 1 #1 apart")
				c.behind(2, natC, 0)
				// The announcement has to travel to the server, and the update from there to the more distant node.
				time.Sleep(ways[1] + max(ways[0], ways[1]) - time.Nanosecond)
				for _, m := range append(a.messages(), c.messages()...) {
					if len(m.Peer.Info.Endpoints) > 0 {
						t.Errorf("early news: %v", names([]protocol.ServerMessage{m}, two...))
					}
				}
				time.Sleep(time.Nanosecond)
				a.expect(two, "peer client 1 #2")
				c.expect(two, "peer agent 1 #1")
			})
		})
	}
}

func TestNothingToPunch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent, client string
		want          []string // of the client, when it has measured
	}{
		"behind the same NAT": {natA, natA, []string{"peer agent 1 #1"}},
		"nobody knows":        {"", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{})
				a := connect(t, s, agent(1), key(100))
				a.behind(1, c.agent, 0)
				w := connect(t, s, laptop(1), key(1), agent(1).ID)
				w.behind(1, "", 0)
				a.expect(two, "welcome", "peer client 1 #1 apart")
				w.expect(two, "welcome", "peer agent 1 #1 apart")
				if c.client != "" {
					w.behind(2, c.client, 0)
				}
				w.expect(two, c.want...)
			})
		})
	}
	t.Run("one is open and moves", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, coordinator.Options{})
			a := connect(t, s, agent(1), key(100))
			a.behind(1, natA, 0)
			a.expect(two, "welcome")
			c := connect(t, s, laptop(1), key(1), agent(1).ID)
			c.announce(1)
			a.expect(two, "peer client 1 #1")
			c.expect(two, "welcome", "peer agent 1 #1")
			n := info(c.p, c.key, 2)
			n.Moves = 1
			c.say(protocol.ClientMessage{Node: &n})
			c.expect(two, "peer agent 1 #1") // the client has forgotten the agent's endpoints
		})
	})
	t.Run("one is open", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, coordinator.Options{})
			a := connect(t, s, agent(1), key(100))
			a.announce(1)
			a.expect(two, "welcome")
			c := connect(t, s, laptop(1), key(1), agent(1).ID)
			c.behind(1, natC, 0)
			a.expect(two, "peer client 1 #1")
			c.expect(two, "welcome", "peer agent 1 #1")
		})
	})
}

// TestPunchAgain: a node that has moved punches its holes again. What it knew of them is void, and so is what they knew
// of it.
func TestPunchAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := connect(t, s, agent(1), key(100))
		a.behind(1, natA, 0)
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		synctest.Wait() // the server has measured both round trips
		c.behind(1, natC, 0)
		a.expect(two, "welcome", "peer client 1 #1")
		c.expect(two, "welcome", "peer agent 1 #1")

		c.behind(2, "", 1)
		a.expect(two, "peer client 1 #2 apart")
		c.expect(two)
		c.behind(3, "203.0.113.200", 1)
		a.expect(two, "peer client 1 #3")
		c.expect(two, "peer agent 1 #1")

		a.behind(2, natA, 0) // nothing new but its number: they have punched already
		c.expect(two, "peer agent 1 #2")
		c.cut()
		c = connect(t, s, laptop(1), key(1), agent(1).ID)
		c.behind(3, "203.0.113.200", 1)
		c.expect(two, "welcome", "peer agent 1 #2")
	})
}
