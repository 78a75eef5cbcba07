package coordinator_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// gate is a connection whose directions can be stopped: a message written through a stopped one waits, or is lost with the connection.
type gate struct {
	protocol.Conn
	answers, words *stopper // the server's messages, and the client's
	free           int      // answers that always pass
	once           sync.Once
	closed         chan struct{}
}

func (g *gate) Close(status websock.Status, reason string) error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close(status, reason)
}

type stopper struct {
	mu   sync.Mutex
	open chan struct{}
}

func newStopper() *stopper {
	s := &stopper{open: make(chan struct{})}
	close(s.open)
	return s
}

func (s *stopper) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = make(chan struct{})
}

func (s *stopper) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.open)
}

func (s *stopper) pass(ctx context.Context, closed <-chan struct{}) error {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-closed:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) Read(ctx context.Context) ([]byte, error) {
	data, err := g.Conn.Read(ctx)
	if err == nil && g.free == 0 {
		err = g.answers.pass(ctx, g.closed)
	}
	g.free = max(g.free-1, 0)
	return data, err
}

func (g *gate) Write(ctx context.Context, data []byte) error {
	if err := g.words.pass(ctx, g.closed); err != nil {
		return err
	}
	return g.Conn.Write(ctx, data)
}

// gated is a door that keeps the gate of its latest connection.
type gated struct {
	door
	version int  // of the hello; 0 leaves it unchanged
	hold    bool // the next connection's answers stop after the welcome

	mu     sync.Mutex
	latest *gate
}

func (g *gated) dial(ctx context.Context, h protocol.Hello) (protocol.Conn, error) {
	if g.version != 0 {
		h.Version = g.version
	}
	conn, err := g.door.dial(ctx, h)
	if err != nil {
		return nil, err
	}
	latest := &gate{Conn: conn, answers: newStopper(), words: newStopper(), closed: make(chan struct{})}
	g.door.mu.Lock()
	g.door.conn = latest
	g.door.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold {
		latest.free = 1
		latest.answers.stop()
	}
	g.latest = latest
	return latest, nil
}

func (g *gated) gate() *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.latest
}

// subscribing calls Subscribe on a goroutine of its own, and returns a channel with its result.
func subscribing(t *testing.T, c *participant, to coordinator.Principal) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Subscribe(t.Context(), to.ID) }()
	return done
}

func waits(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("Subscribe returned %v before the server has answered it", err)
	default:
	}
}

// keeps fails unless the node has the peer now, and still has it, unchanged, once every message in transit has arrived.
func keeps(t *testing.T, c *participant, peer coordinator.Principal) {
	t.Helper()
	node := c.node.Load()
	if _, ok := node.peer(peer.ID); !ok {
		t.Fatalf("Subscribe returned and the node does not have the peer: %q", node.log)
	}
	before := len(node.log)
	synctest.Wait()
	if later := node.log[before:]; slices.Contains(later, "remove") {
		t.Fatalf("the node lost the peer after Subscribe returned: %q, then %q", node.log[:before], later)
	}
}

// broken unsubscribes from the agent and subscribes again while a direction of the connection is stopped, and then cuts the connection.
func broken(t *testing.T, d *gated, c *participant, direction *stopper) {
	t.Helper()
	direction.stop()
	c.Unsubscribe(agent(1).ID)
	synctest.Wait()
	done := subscribing(t, c, agent(1))
	waits(t, done)
	d.mu.Lock()
	d.hold = true
	d.mu.Unlock()
	d.cut()
	time.Sleep(time.Second)
	if !c.Online() {
		t.Fatal("not connected again")
	}
	waits(t, done)
	d.gate().answers.goOn()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	keeps(t, c, agent(1))
}

// introduced returns a client that has been introduced to an agent.
func introduced(t *testing.T, version int) (*coordinator.Server, *gated, *participant) {
	s := newServer(t, coordinator.Options{LostTimeout: 10 * time.Minute})
	join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
	d := &gated{door: door{p: laptop(1), server: s}, version: version}
	c := join(t, protocol.KindClient, key(1), client.Options{Dial: d.dial})
	if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return s, d, c
}

// renewals are ways to give up a subscription and to want it again.
var renewals = map[string]func(*testing.T){
	"the goodbye is on its way": func(t *testing.T) {
		_, d, c := introduced(t, 0)
		d.gate().answers.stop()
		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		first, second := subscribing(t, c, agent(1)), subscribing(t, c, agent(1))
		waits(t, first)
		waits(t, second)
		d.gate().answers.goOn()
		for _, done := range []<-chan error{first, second} {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		keeps(t, c, agent(1))
	},
	"given up and wanted before the server hears of it": func(t *testing.T) {
		_, _, c := introduced(t, 0)
		for range 3 {
			c.Unsubscribe(agent(1).ID)
			if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
				t.Fatal(err)
			}
			keeps(t, c, agent(1))
		}
	},
	"given up again meanwhile": func(t *testing.T) {
		s, d, c := introduced(t, 0)
		d.gate().answers.stop()
		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		done := subscribing(t, c, agent(1))
		waits(t, done)
		c.Unsubscribe(agent(1).ID)
		if err := <-done; err == nil {
			t.Fatal("a subscription that was given up succeeded")
		}
		d.gate().answers.goOn()
		synctest.Wait()
		if _, ok := c.node.Load().peer(agent(1).ID); ok || s.Stats().Tunnels != 0 {
			t.Fatalf("the node has the peer: %v; %d tunnels", ok, s.Stats().Tunnels)
		}
	},
	"the connection breaks after the server has heard of it": func(t *testing.T) {
		_, d, c := introduced(t, 0)
		broken(t, d, c, d.gate().answers)
	},
	"the connection breaks before the server hears of it": func(t *testing.T) {
		_, d, c := introduced(t, 0)
		broken(t, d, c, d.gate().words)
	},
	"the goodbye is lost with the connection": func(t *testing.T) {
		s, d, c := introduced(t, 0)
		d.gate().words.stop()
		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		d.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		if _, ok := c.node.Load().peer(agent(1).ID); ok || s.Stats().Tunnels != 0 {
			t.Fatalf("the node has the peer: %v; %d tunnels", ok, s.Stats().Tunnels)
		}
	},
	"a server that does not confirm": func(t *testing.T) {
		_, _, c := introduced(t, 2)
		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		keeps(t, c, agent(1))
	},
}

func TestSubscribeAgain(t *testing.T) {
	t.Parallel()
	for name, test := range renewals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

// TestSubscribeAgainToPartner: an agent subscribes to servers. When a server's node gives up its own subscription, they stay
// introduced, and no goodbye comes.
func TestSubscribeAgainToPartner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		d := &gated{door: door{p: server(1), server: s}}
		own := join(t, protocol.KindServer, key(50), client.Options{Dial: d.dial})
		if err := own.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.gate().answers.stop()
		own.Unsubscribe(agent(1).ID)
		synctest.Wait()
		done := subscribing(t, own, agent(1))
		d.gate().answers.goOn()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		keeps(t, own, agent(1))
		if log := own.node.Load().log; slices.Contains(log, "remove") {
			t.Fatalf("the agent was removed although it wants the server: %q", log)
		}
	})
}

// TestSubscribeAgainIsRefused checks that the server's refusal of the new subscription takes effect, and comes after the end of the
// old one.
func TestSubscribeAgainIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{}
		s := newServer(t, coordinator.Options{Authorizer: rules})
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		d := &gated{door: door{p: laptop(1), server: s}}
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: d.dial})
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.gate().answers.stop()
		for range 100 { // more than the connection holds: the server must postpone its messages
			a.node.Load().move()
			synctest.Wait()
		}
		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		rules.set(laptop(1).ID, agent(1).ID, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- c.Subscribe(ctx, agent(1).ID) }()
		waits(t, done)
		d.gate().answers.goOn()
		if err := <-done; fault.CodeOf(err) != fault.NotFound {
			t.Fatalf("got %v, want the refusal", err)
		}
	})
}

// TestSubscribeAgainAfterRefusal checks that a refusal of the old subscription that is still in transit does not affect the new one.
func TestSubscribeAgainAfterRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{}
		s := newServer(t, coordinator.Options{Authorizer: rules})
		join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		d := &gated{door: door{p: laptop(1), server: s}}
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: d.dial})
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.gate().answers.stop()
		rules.set(laptop(1).ID, agent(1).ID, true)
		if err := s.Recheck(t.Context(), laptop(1).ID); err != nil {
			t.Fatal(err)
		}
		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		rules.set(laptop(1).ID, agent(1).ID, false)
		done := subscribing(t, c, agent(1))
		waits(t, done)
		d.gate().answers.goOn()
		if err := <-done; err != nil {
			t.Fatalf("refused with the old answer: %v", err)
		}
		keeps(t, c, agent(1))
	})
}

// TestLastWaiterWithdraws checks that the last of several callers to give up withdraws the subscription, but a granted subscription
// stays.
func TestLastWaiterWithdraws(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		wait := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if err := c.Subscribe(ctx, agent(1).ID); err == nil {
				t.Error("introduced to an agent that is not there")
			}
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { wait(time.Second) })
		synctest.Wait()
		waiting.Go(func() { wait(2 * time.Second) })
		waiting.Wait()
		synctest.Wait()
		if n := s.Stats().Tunnels; n != 0 {
			t.Fatalf("%d tunnels, want the subscription withdrawn", n)
		}

		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		a.Close()
		synctest.Wait()
		wait(time.Second)
		synctest.Wait()
		if n := s.Stats().Tunnels; n != 1 {
			t.Fatalf("%d tunnels, want the earlier caller's subscription", n)
		}
	})
}

// TestConfirmationsAreBounded checks that a client that unsubscribes from everything and reads nothing costs the server a bounded
// number of answers.
func TestConfirmationsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		conn, err := s.Dialer(laptop(1))(t.Context(), protocol.Hello{Version: protocol.Version, Key: key(1)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(1000, "")
		for n := range 1500 {
			if err := conn.Write(t.Context(), encodeMessage(protocol.ClientMessage{Unsubscribe: ref(agent(n).ID)})); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		patience, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for {
			data, err := conn.Read(patience)
			if err != nil {
				t.Fatalf("the connection ended without a reason: %v", err)
			}
			m, err := protocol.DecodeServerMessage(data)
			if err != nil {
				t.Fatal(err)
			}
			if m.Error != nil {
				if m.Error.Code != fault.RateLimited {
					t.Fatalf("turned away with %+v", m.Error)
				}
				return
			}
		}
	})
}
