package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

var _ client.Node = (*tailnet.Node)(nil)

func TestClientsMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		w, err := c.Welcome(t.Context())
		if err != nil || w.ID != laptop(1).ID {
			t.Fatalf("welcome is %+v, %v", w, err)
		}
		began := time.Now()
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Fatalf("introduced after %s of the bubble's time: something waited for a timer", took)
		}
		synctest.Wait()
		if p, ok := c.node.Load().peer(agent(1).ID); !ok || p.Inbound.Any() {
			t.Fatalf("client's node knows the agent: %v, inbound %+v", ok, p.Inbound)
		}
		if p, ok := a.node.Load().peer(laptop(1).ID); !ok || !p.Inbound.Any() {
			t.Fatalf("agent's node knows the client: %v, inbound %+v", ok, p.Inbound)
		}

		c.node.Load().move()
		synctest.Wait()
		if p, _ := a.node.Load().peer(laptop(1).ID); p.Seq != c.node.Load().Info().Seq {
			t.Fatalf("agent knows #%d, want #%d", p.Seq, c.node.Load().Info().Seq)
		}

		c.Unsubscribe(agent(1).ID)
		synctest.Wait()
		if _, ok := c.node.Load().peer(agent(1).ID); ok {
			t.Fatal("client still has the agent")
		}
		if _, ok := a.node.Load().peer(laptop(1).ID); ok {
			t.Fatal("agent still has the client")
		}
	})
}

// TestBusyServer checks that a client returns when a busy server asks it to, and not at one moment with others, and that
// it does not wait for a server that is away.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct{ low, high time.Duration }{
		fault.Busy: {8 * time.Second, 10 * time.Second},
		"":         {0, time.Second},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{})
				returns := make(chan time.Duration, 10)
				for i := range 10 {
					began, refusals := time.Now(), 0
					dial := func(ctx context.Context, h protocol.Hello) (protocol.Conn, error) {
						if refusals++; refusals == 1 {
							f := fault.New(fault.Unavailable, "later")
							f.Reason, f.RetryAfter = reason, 8*time.Second
							return nil, f
						}
						returns <- time.Since(began)
						return s.Dialer(agent(1+i))(ctx, h)
					}
					join(t, protocol.KindAgent, key(100+uint64(i)), client.Options{Dial: dial})
					time.Sleep(time.Minute)
				}
				var back []time.Duration
				for range 10 {
					d := <-returns
					back = append(back, d)
					if d < c.low || d > c.high {
						t.Errorf("an agent returns after %s, want %s to %s", d, c.low, c.high)
					}
				}
				slices.Sort(back)
				if len(slices.Compact(back)) < 2 {
					t.Errorf("10 agents return after %v", back)
				}
			})
		})
	}
}

func TestClientFindsTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		synctest.Wait()
		node := newFakeNode(server(1).ID, key(50))
		own := client.New(client.Options{
			Dial: s.Dialer(server(1)), Kind: protocol.KindServer,
			Key: key(50), NewNode: func(protocol.Welcome) (client.Node, error) { return node, nil },
		})
		own.Start()
		defer own.Close()
		got, err := a.Server(t.Context())
		if err != nil || got.ID != server(1).ID {
			t.Fatalf("got %+v, %v", got, err)
		}
		synctest.Wait()
		if _, ok := node.peer(agent(1).ID); !ok {
			t.Fatal("the server does not have the agent")
		}
	})
}

func TestSubscribeIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{}
		s := newServer(t, coordinator.Options{Authorizer: rules})
		rules.set(laptop(1).ID, agent(1).ID, true)
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		err := c.Subscribe(t.Context(), agent(1).ID)
		if fault.CodeOf(err) != fault.NotFound || err.Error() != "no such workspace" {
			t.Fatalf("got %v", err)
		}

		// The client asks again for what the server could not decide.
		rules.set(laptop(1).ID, agent(1).ID, false)
		rules.fail(errors.New("database is away"))
		join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := c.Subscribe(short, agent(1).ID); fault.CodeOf(err) != fault.Internal {
			t.Fatalf("got %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Subscribe(t.Context(), agent(1).ID) }()
		time.Sleep(3 * time.Second)
		rules.fail(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestSubscribeGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Subscribe(short, agent(1).ID); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if n := s.Stats().Tunnels; n != 0 {
			t.Fatalf("%d tunnels, want the subscription withdrawn", n)
		}
	})
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := newServer(t, coordinator.Options{LostTimeout: 10 * time.Minute})
		da, dc, dx := &door{p: agent(1), server: first}, &door{p: laptop(1), server: first}, &door{p: laptop(2), server: first}
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: da.dial})
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: dc.dial})
		x := join(t, protocol.KindClient, key(2), client.Options{Dial: dx.dial})
		for _, p := range []*participant{c, x} {
			if err := p.Subscribe(t.Context(), agent(1).ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for _, d := range []*door{da, dc, dx} {
			d.set(nil, nil)
		}
		first.Close()
		time.Sleep(20 * time.Minute)
		x.Close() // no server receives the bye
		node := a.node.Load()
		if _, ok := node.peer(laptop(1).ID); !ok || node.isOnline() || a.Online() {
			t.Fatalf("while the server is away: agent knows the client %v, online %v", ok, node.isOnline())
		}
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatalf("a known peer while offline: %v", err)
		}
		if n := da.count(); n > 200 {
			t.Fatalf("%d dials in 20 minutes", n)
		}

		second := newServer(t, coordinator.Options{LostTimeout: 10 * time.Minute})
		da.set(second, nil)
		dc.set(second, nil)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if !a.Online() || !c.Online() || !node.isOnline() {
			t.Fatal("not connected again")
		}
		if slices.Contains(node.log, "remove") || slices.Contains(c.node.Load().log, "remove") {
			t.Fatalf("a tunnel was touched: agent %q, client %q", node.log, c.node.Load().log)
		}
		if st := second.Stats(); st.Tunnels != 1 {
			t.Fatalf("stats of the new server are %+v, want one tunnel", st)
		}
		// After the grace period the client removes the peer that the new server does not know, and keeps the other.
		if _, ok := node.peer(laptop(2).ID); !ok {
			t.Fatal("the other client was removed too early")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if _, ok := node.peer(laptop(2).ID); ok {
			t.Fatal("a client that is gone is still known")
		}
		if _, ok := node.peer(laptop(1).ID); !ok {
			t.Fatal("a client that is connected was removed")
		}
	})
}

func TestReconnectIsFastAtFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		d := &door{p: agent(1), server: s}
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: d.dial})
		synctest.Wait()
		time.Sleep(time.Minute)
		d.cut()
		time.Sleep(301 * time.Millisecond)
		synctest.Wait()
		if !a.Online() || d.count() != 2 {
			t.Fatalf("online %v after %d dials", a.Online(), d.count())
		}
		d.set(nil, nil)
		d.cut()
		time.Sleep(time.Second)
		if n := d.count() - 2; n < 3 || n > 10 {
			t.Fatalf("%d dials in the first second", n)
		}
		time.Sleep(time.Hour)
		before := d.count()
		time.Sleep(time.Hour)
		if n := d.count() - before; n < 240 || n > 480 {
			t.Fatalf("%d dials in an hour", n)
		}
		// Reconnect cuts the pause short once the network is back.
		d.set(s, nil)
		a.Reconnect()
		synctest.Wait()
		if !a.Online() {
			t.Fatal("not connected after Reconnect")
		}
	})
}

func TestRefusedCredentialEndsTheClient(t *testing.T) {
	t.Parallel()
	for _, code := range []fault.Code{fault.Unauthenticated, fault.Forbidden} {
		synctest.Test(t, func(t *testing.T) {
			d := &door{refuse: fault.New(code, "go away")}
			c := client.New(client.Options{Dial: d.dial, Kind: protocol.KindAgent, Key: key(1)})
			if err := c.Run(t.Context()); fault.CodeOf(err) != code {
				t.Fatalf("got %v, want %s", err, code)
			}
			if d.count() != 1 {
				t.Fatalf("%d dials, want 1", d.count())
			}
			if _, err := c.Welcome(t.Context()); fault.CodeOf(err) != code {
				t.Fatalf("Welcome says %v, want %s", err, code)
			}
			if err := c.Subscribe(t.Context(), agent(1).ID); fault.CodeOf(err) != code {
				t.Fatalf("Subscribe says %v, want %s", err, code)
			}
			c.Close()
			if fault.CodeOf(c.Err()) != code {
				t.Fatalf("Err says %v, want %s", c.Err(), code)
			}
		})
	}
}

func TestRevokedClientEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: s.Dialer(agent(1))})
		synctest.Wait()
		s.Revoke(agent(1).ID, "the workspace was deleted")
		<-a.Done()
		if err := a.Err(); fault.CodeOf(err) != fault.Forbidden || err.Error() != "the workspace was deleted" {
			t.Fatalf("got %v", err)
		}
		b := join(t, protocol.KindAgent, key(101), client.Options{Dial: s.Dialer(agent(2))})
		synctest.Wait()
		s.Kick(agent(2).ID, "try again")
		time.Sleep(time.Second)
		synctest.Wait()
		if !b.Online() {
			t.Fatal("a kicked client did not come back")
		}
	})
}

func TestClientClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		synctest.Wait()
		c.Close()
		c.Close()
		synctest.Wait()
		if st := s.Stats(); st.Online+st.Lost != 0 {
			t.Fatalf("stats are %+v: bye was not heard", st)
		}
		if err := c.Run(t.Context()); err != nil || c.Err() != nil {
			t.Fatalf("after Close: %v, %v", err, c.Err())
		}
		never := client.New(client.Options{})
		never.Close()
		if err := never.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := never.Welcome(t.Context()); fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("Welcome of a closed client says %v", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		node := newFakeNode(agent(1).ID, key(100))
		a := client.New(client.Options{
			Dial: s.Dialer(agent(1)), Kind: protocol.KindAgent, Key: key(100),
			NewNode: func(protocol.Welcome) (client.Node, error) { return node, nil },
		})
		ran := make(chan error, 1)
		go func() { ran <- a.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := s.Stats(); st.Online+st.Lost != 0 {
			t.Fatalf("stats are %+v: bye was not heard", st)
		}
	})
}

func TestWrongNodeEndsTheClient(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(protocol.Welcome) (client.Node, error){
		"no node":     func(protocol.Welcome) (client.Node, error) { return nil, errors.New("no sockets left") },
		"another key": func(w protocol.Welcome) (client.Node, error) { return newFakeNode(w.ID, key(2)), nil },
		"another id":  func(protocol.Welcome) (client.Node, error) { return newFakeNode(agent(2).ID, key(1)), nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, coordinator.Options{})
			c := client.New(client.Options{
				Dial: s.Dialer(agent(1)), Kind: protocol.KindAgent, Key: key(1), NewNode: make,
			})
			if err := c.Run(t.Context()); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
}

// TestPeerThatTheNodeRefuses checks that the client does not acknowledge a peer that its node refuses, so the server introduces the
// initiator only after its timeout.
func TestPeerThatTheNodeRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		asked := &gated{door: door{p: agent(1), server: s}, version: versionAsked}
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: asked.dial})
		synctest.Wait()
		node := a.node.Load()
		node.mu.Lock()
		node.refuse = errors.New("full")
		node.mu.Unlock()
		c := join(t, protocol.KindClient, key(1), client.Options{Dial: s.Dialer(laptop(1))})
		began := time.Now()
		if err := c.Subscribe(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != coordinator.DefaultReadyTimeout {
			t.Fatalf("introduced after %s", took)
		}
	})
}

// TestOverWebsocket uses real HTTP: the peers meet, the agent restarts, and the server refuses a credential.
func TestOverWebsocket(t *testing.T) {
	t.Parallel()
	s := newSite(t, coordinator.Options{})
	web := func(name string) client.Options {
		return client.Options{URL: s.url(), Header: credential(name)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := join(t, protocol.KindAgent, key(100), web("agent 1"))
	opts := web("user 1")
	opts.Subscribe = []uuid.UUID{agent(1).ID}
	c := join(t, protocol.KindClient, key(1), opts)
	if err := c.Subscribe(ctx, agent(1).ID); err != nil {
		t.Fatal(err)
	}
	a.Close()
	join(t, protocol.KindAgent, key(101), web("agent 1"))
	for {
		p, ok := c.node.Load().peer(agent(1).ID)
		if ok && p.Key == key(101) {
			break
		}
		if err := ctx.Err(); err != nil {
			t.Fatalf("the agent's new key did not arrive: %v", err)
		}
		time.Sleep(time.Millisecond)
	}

	stranger := client.New(client.Options{URL: s.url(), Kind: protocol.KindClient, Key: key(3)})
	if err := stranger.Run(ctx); fault.CodeOf(err) != fault.Unauthenticated || fault.As(err).Message != "sign in first" {
		t.Fatalf("without a credential: %v", err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer plain.Close()
	u, err := url.Parse(plain.URL)
	if err != nil {
		t.Fatal(err)
	}
	stranger = client.New(client.Options{URL: u, Kind: protocol.KindClient, Key: key(3)})
	if err := stranger.Run(ctx); fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatalf("without a credential, and without words: %v", err)
	}
}

func Example() {
	s := coordinator.New(coordinator.Options{Authorizer: everyone, RelayMap: relayMap})
	defer s.Close()
	me := tailnet.NewPrivateKey().Public()
	id := tailnet.ClientID(me)
	c := client.New(client.Options{
		Dial: s.Dialer(coordinator.Principal{Kind: protocol.KindClient, ID: id}),
		Kind: protocol.KindClient, Key: me,
		NewNode: func(w protocol.Welcome) (client.Node, error) { return newFakeNode(w.ID, me), nil },
	})
	c.Start()
	defer c.Close()
	w, err := c.Welcome(context.Background())
	fmt.Println(w.ID == id, err)
	// Output: true <nil>
}
