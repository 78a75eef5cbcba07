package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// refusedHello connects and checks that the server refuses with a fault of the given code.
func refusedHello(t *testing.T, s *coordinator.Server, p coordinator.Principal, h protocol.Hello, want fault.Code) {
	t.Helper()
	conn, err := s.Dialer(p)(t.Context(), h)
	if err == nil {
		conn.Close(1000, "")
	}
	if got := fault.CodeOf(err); got != want {
		t.Fatalf("connect as %s: got %v (%q), want %q", p.Name, err, got, want)
	}
}

func TestNobodySeesAnybodyByDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := coordinator.New(coordinator.Options{RelayMap: relayMap})
		defer s.Close()
		a := connect(t, s, agent(1), key(100))
		a.announce(1)
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		c.announce(1)
		c.expect(two, "welcome", "refused agent 1: forbidden")
		a.expect(two, "welcome")
	})
}

func TestKindsThatNeverMeet(t *testing.T) {
	t.Parallel()
	worker := coordinator.Principal{Kind: protocol.KindProvisioner, ID: id(protocol.KindProvisioner, 1), Name: "provisioner 1"}
	all := []coordinator.Principal{agent(1), agent(2), laptop(1), laptop(2), worker}
	keys := []tailnet.PublicKey{key(100), key(101), key(1), key(2), key(200)}
	for i, from := range all {
		for j, to := range all {
			if i == j || (from.Kind == protocol.KindClient && to.Kind != protocol.KindClient) {
				continue
			}
			t.Run(from.Name+" to "+to.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, coordinator.Options{})
					b := connect(t, s, to, keys[j])
					b.announce(1)
					a := connect(t, s, from, keys[i])
					a.announce(1)
					a.subscribe(to.ID)
					a.expect(all, "welcome", "refused "+to.Name+": not_found")
					b.expect(all, "welcome")
				})
				synctest.Test(t, func(t *testing.T) { // the target comes later
					s := newServer(t, coordinator.Options{})
					a := connect(t, s, from, keys[i])
					a.announce(1)
					a.subscribe(to.ID)
					a.expect(all, "welcome")
					b := connect(t, s, to, keys[j])
					b.announce(1)
					a.expect(all, "refused "+to.Name+": not_found")
					b.expect(all, "welcome")
				})
			})
		}
	}
}

func TestKeyBelongsToOnePrincipal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a, c := pair(t, s)
		hello := protocol.Hello{Version: 1, Key: key(100)}
		refusedHello(t, s, agent(2), hello, fault.Conflict)
		// A client's id must follow from its key.
		refusedHello(t, s, laptop(2), hello, fault.Forbidden)
		thief := laptop(2)
		thief.ID = tailnet.ClientID(key(100))
		refusedHello(t, s, thief, hello, fault.Conflict)
		// Another user presents a connected client's key.
		thief = laptop(1)
		thief.Subject = laptop(2).Subject
		refusedHello(t, s, thief, protocol.Hello{Version: 1, Key: key(1)}, fault.Conflict)
		a.expect(two)
		c.expect(two)
	})
}

// TestReplacedByOwnAttempt checks that a process whose connection is replaced by an attempt that it had given up tries again: on a busy server, the
// attempt may have waited for longer than the next one. Another process, with another key, takes its place for good.
func TestReplacedByOwnAttempt(t *testing.T) {
	t.Parallel()
	worker := coordinator.Principal{Kind: protocol.KindProvisioner, ID: id(protocol.KindProvisioner, 1), Name: "provisioner 1"}
	for _, p := range []coordinator.Principal{worker, laptop(1), agent(1)} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, coordinator.Options{})
				first := connect(t, s, p, key(1))
				first.expect(nil, "welcome")
				connect(t, s, p, key(1))
				first.expect(nil, "error unavailable")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		first := connect(t, s, worker, key(1))
		first.expect(nil, "welcome")
		connect(t, s, worker, key(2))
		first.expect(nil, "error conflict")
	})
}

func TestKick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		relay := &relayLog{}
		s := newServer(t, coordinator.Options{Relay: relay})
		a, c := pair(t, s)
		if !s.Kick(laptop(1).ID, "you look tired") {
			t.Fatal("the client was not there")
		}
		if relay.has(key(1)) {
			t.Fatal("the relay still admits the key when Kick returns")
		}
		a.expect(two, "gone client 1")
		c.expect(two, "error unavailable")
		if c.err == nil {
			t.Fatal("the connection is still open")
		}
		c = connect(t, s, laptop(1), key(1))
		c.expect(two, "welcome")
		if s.Kick(agent(2).ID, "") {
			t.Fatal("somebody was kicked who is not there")
		}
	})
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		relay := &relayLog{}
		s := newServer(t, coordinator.Options{Relay: relay})
		a, c := pair(t, s)
		before := time.Now()
		if !s.Revoke(agent(1).ID, "the workspace was deleted") {
			t.Fatal("the agent was not there")
		}
		m := a.messages()
		if len(m) != 1 || m[0].Error == nil || m[0].Error.Code != fault.Forbidden || m[0].Error.Message != "the workspace was deleted" {
			t.Fatalf("agent got %q, want the reason", names(m, two...))
		}
		c.expect(two, "refused agent 1: forbidden", "gone agent 1")
		if relay.has(key(100)) {
			t.Fatal("the relay still admits the key")
		}
		// Credentials checked before the revocation do not count; the caller is responsible for later ones.
		time.Sleep(time.Second)
		if err := s.Serve(t.Context(), &lateConn{}, agent(1), protocol.Hello{Version: 1, Key: key(100), At: before}); fault.CodeOf(err) != fault.Unauthenticated {
			t.Fatalf("a connection authenticated before the revocation: %v, want unauthenticated", err)
		}
		connect(t, s, agent(1), key(100)).expect(two, "welcome")
		c.expect(two) // the subscription ended with the revocation
	})
}

// lateConn is a Conn that only takes messages.
type lateConn struct{ protocol.Conn }

func (*lateConn) Write(context.Context, []byte) error { return nil }
func (*lateConn) Close(websock.Status, string) error  { return nil }

func TestRevokeWhileLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a, c := pair(t, s)
		c.cut()
		a.expect(two, "lost client 1")
		s.Revoke(laptop(1).ID, "signed out")
		a.expect(two, "gone client 1")
	})
}

func TestRecheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{}
		s := newServer(t, coordinator.Options{Authorizer: rules})
		a, c := pair(t, s)
		if err := s.Recheck(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.expect(two)
		c.expect(two)

		rules.fail(errors.New("database is away"))
		if err := s.Recheck(t.Context(), laptop(1).ID); err == nil {
			t.Fatal("no error though nothing could be decided")
		}
		c.expect(two)

		rules.fail(nil)
		rules.set(laptop(1).ID, agent(1).ID, true)
		if err := s.Recheck(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		a.expect(two, "gone client 1")
		c.expect(two, "refused agent 1: not_found", "gone agent 1")
	})
}

// TestAuthorizationIsNotStale checks that an answer that was requested before a change of the rules and arrives after it does not
// count.
func TestAuthorizationIsNotStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{}
		answer := make(chan struct{})
		var once sync.Once
		s := newServer(t, coordinator.Options{Authorizer: coordinator.AuthorizerFunc(
			func(ctx context.Context, from coordinator.Principal, to coordinator.Target) error {
				err := rules.MaySee(ctx, from, to)
				once.Do(func() { <-answer })
				return err
			})})
		a := connect(t, s, agent(1), key(100))
		a.announce(1)
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		c.announce(1)
		synctest.Wait()
		rules.set(laptop(1).ID, agent(1).ID, true)
		if err := s.Recheck(t.Context(), agent(1).ID); err != nil {
			t.Fatal(err)
		}
		close(answer)
		c.expect(two, "welcome", "refused agent 1: not_found")
		a.expect(two, "welcome")
	})
}

func TestUndecidedIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rules := &policy{err: errors.New("password of the database is hunter2")}
		s := newServer(t, coordinator.Options{Authorizer: rules})
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		m := c.messages()
		if len(m) != 2 || m[1].Refused == nil || m[1].Refused.Code != fault.Internal {
			t.Fatalf("got %q", names(m, two...))
		}
		if got := m[1].Refused.Message; got != "the server could not decide whether this is allowed" {
			t.Fatalf("the person is told %q", got)
		}
	})
}

func TestTooManySubscriptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{MaxSubscriptions: 2})
		c := connect(t, s, laptop(1), key(1))
		for i := range 3 {
			c.subscribe(agent(i).ID)
		}
		all := []coordinator.Principal{agent(0), agent(1), agent(2)}
		c.expect(all, "welcome", "refused agent 2: rate_limited")
		c.unsubscribe(agent(0).ID)
		c.subscribe(agent(2).ID)
		c.expect(all, "unsubscribed agent 0")
	})
}

func TestRelayAdmitsBeforeWelcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		relay := &relayLog{hold: make(chan struct{})}
		s := newServer(t, coordinator.Options{Relay: relay})
		a := connect(t, s, agent(1), key(100))
		a.expect(two, "welcome")
		if !relay.has(key(100)) {
			t.Fatal("the key was not admitted before the welcome")
		}
		// The relay takes time to release the key. A hello with the key waits for it; otherwise the key would be revoked after its
		// admission.
		a.bye()
		synctest.Wait()
		again := connect(t, s, agent(1), key(100))
		again.expect(two)
		close(relay.hold)
		again.expect(two, "welcome")
		if !relay.has(key(100)) || !slices.Equal(relay.log, []string{"admit", "revoke", "admit"}) {
			t.Fatalf("the relay was told %q", relay.log)
		}
	})
}

func TestPeersAndEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		events := map[string][]bool{} // by name: whether online; the order holds for one participant only
		s := newServer(t, coordinator.Options{OnPeer: func(p coordinator.Principal, online bool) {
			mu.Lock()
			defer mu.Unlock()
			events[p.Name] = append(events[p.Name], online)
		}})
		a, c := pair(t, s)
		c.cut()
		synctest.Wait()
		list := s.Peers()
		if len(list) != 2 || list[0].ID != agent(1).ID || !list[0].Online || list[1].Online || list[0].Region != region ||
			list[0].Addr != tailnet.Addr(agent(1).ID) || list[0].Tunnels != 1 || list[1].LastSeen.IsZero() {
			t.Fatalf("peers are %+v", list)
		}
		a.bye()
		synctest.Wait()
		s.Kick(laptop(1).ID, "")
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range []string{"agent 1", "client 1"} {
			if want := []bool{true, false}; !slices.Equal(events[name], want) {
				t.Fatalf("%s was online %v, want %v", name, events[name], want)
			}
		}
		if p, ok := s.Lookup(tailnet.Addr(agent(1).ID)); ok {
			t.Fatalf("%s is still found by its address", p.Name)
		}
		if _, ok := s.Lookup(tailnet.Addr(uuid.New())); ok {
			t.Fatal("an address of nobody was found")
		}
	})
}
