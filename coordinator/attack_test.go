package coordinator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// site serves the coordinator over HTTP. The credential is a header that names a principal.
type site struct {
	*coordinator.Server
	http  *httptest.Server
	users map[string]coordinator.Principal // by credential; a client's id is filled in from its key
}

func newSite(t testing.TB, opts coordinator.Options) *site {
	t.Helper()
	w := &site{Server: newServer(t, opts), users: map[string]coordinator.Principal{
		"agent 1": agent(1), "agent 2": agent(2), "server 1": server(1),
		"user 1": laptop(1), "user 2": laptop(2), "mallory": {Kind: protocol.KindClient, Name: "mallory", Subject: id("user", 666)},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+protocol.Path, w.serve)
	w.http = httptest.NewServer(mux)
	t.Cleanup(w.http.Close)
	return w
}

func (w *site) serve(rw http.ResponseWriter, r *http.Request) {
	h, err := protocol.ParseHello(r)
	p, ok := w.users[r.Header.Get("Credential")]
	switch {
	case err != nil:
	case !ok:
		err = fault.New(fault.Unauthenticated, "sign in first")
	default:
		if p.Kind == protocol.KindClient {
			p.ID = tailnet.ClientID(h.Key)
		}
		err = w.Handle(rw, r, p, h)
	}
	if f := fault.As(err); f != nil {
		rw.WriteHeader(f.Code.HTTPStatus())
		json.NewEncoder(rw).Encode(map[string]string{"message": f.Message, "detail": f.Detail})
	}
}

func (w *site) url() *url.URL {
	u, err := url.Parse(w.http.URL)
	if err != nil {
		panic(err)
	}
	return u
}

func credential(name string) func(context.Context) (http.Header, error) {
	return func(context.Context) (http.Header, error) { return http.Header{"Credential": {name}}, nil }
}

// dial opens a raw websocket, with query on top of a proper hello.
func (w *site) dial(ctx context.Context, name string, k tailnet.PublicKey, more url.Values) (*websock.Conn, error) {
	u := w.url().JoinPath(protocol.Path)
	q := url.Values{"v": {"1"}, "key": {k.String()}}
	for name, values := range more {
		q[name] = values
	}
	u.RawQuery = q.Encode()
	header, _ := credential(name)(ctx)
	return websock.Dial(ctx, u, websock.DialOptions{Header: header, ReadLimit: protocol.MaxServerMessage})
}

func (w *site) connect(t *testing.T, name string, k tailnet.PublicKey) *wire {
	t.Helper()
	conn, err := w.dial(t.Context(), name, k, nil)
	if err != nil {
		t.Fatalf("connect as %s: %v", name, err)
	}
	p := w.users[name]
	if p.Kind == protocol.KindClient {
		p.ID = tailnet.ClientID(k)
	}
	return newWire(t, conn, p, k)
}

// wait blocks until a message matches, and returns all before it.
func (w *wire) wait(match func(protocol.ServerMessage) bool) (before []protocol.ServerMessage) {
	w.t.Helper()
	testwait.Until(w.t, w.p.Name+" receives a message", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.IndexFunc(w.got, match)
		if i < 0 {
			return fmt.Errorf("it got %q, and its error is %s", names(w.got), fmt.Sprint(w.err))
		}
		before, w.got = w.got[:i], w.got[i+1:]
		return nil
	})
	return before
}

func isWelcome(m protocol.ServerMessage) bool { return m.Welcome != nil }
func isError(m protocol.ServerMessage) bool   { return m.Error != nil }
func isPeer(id uuid.UUID) func(protocol.ServerMessage) bool {
	return func(m protocol.ServerMessage) bool { return m.Peer != nil && m.Peer.Info.ID == id }
}
func isRefused(m protocol.ServerMessage) bool { return m.Refused != nil }

// attackerKey is the key of an attacker's node.
var attackerKey = key(999)

// mallory is an honest announcement of the attacker's node.
func mallory(w *wire) tailnet.NodeInfo { return info(w.p, w.key, 1) }

// attacks are what an attacker with a credential of their own does. Agent 1 is the victim.
var attacks = map[string]struct {
	credential string
	do         func(w *wire)
	code       fault.Code // of the error that ends the connection; empty if the connection stays open
}{
	"announces a foreign id": {"mallory", func(w *wire) {
		n := mallory(w)
		n.ID = agent(1).ID
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Forbidden},
	"announces a foreign key": {"mallory", func(w *wire) {
		n := mallory(w)
		n.Key = key(100)
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Forbidden},
	"agent announces another agent": {"agent 2", func(w *wire) {
		n := info(agent(1), w.key, 1)
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Forbidden},
	"announces an endpoint inside the mesh": {"mallory", func(w *wire) {
		n := mallory(w)
		n.Endpoints = []netip.AddrPort{netip.AddrPortFrom(tailnet.Addr(agent(1).ID), 1)}
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Invalid},
	"announces too many endpoints": {"mallory", func(w *wire) {
		n := mallory(w)
		for i := range protocol.MaxEndpoints + 1 {
			n.Endpoints = append(n.Endpoints, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), uint16(i+1)))
		}
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Invalid},
	"is mapped to where it is not": {"mallory", func(w *wire) {
		n := mallory(w)
		n.Mapped = netip.MustParseAddrPort("192.0.2.10:9")
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Invalid},
	"announces multicast endpoints": {"mallory", func(w *wire) {
		n := mallory(w)
		n.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("224.0.0.1:9")}
		w.say(protocol.ClientMessage{Node: &n})
	}, fault.Invalid},
	"subscribes to a foreign agent": {"mallory", func(w *wire) {
		w.announce(1)
		w.subscribe(agent(1).ID)
		w.wait(isRefused)
	}, ""},
	"answers ready for what was not offered": {"mallory", func(w *wire) {
		w.announce(1)
		w.ready(agent(1).ID)
		w.ready(laptop(1).ID)
		w.subscribe(agent(1).ID)
		w.wait(isRefused)
	}, ""},
	"unsubscribes what is not its own": {"mallory", func(w *wire) {
		w.unsubscribe(agent(1).ID)
		w.subscribe(agent(1).ID)
		w.wait(isRefused)
	}, ""},
	"subscribes to itself": {"mallory", func(w *wire) { w.subscribe(w.p.ID) }, fault.Invalid},
	"garbage":              {"mallory", func(w *wire) { w.sayRaw([]byte("\x00\xff{{{")) }, fault.Invalid},
	"two messages in one":  {"mallory", func(w *wire) { w.sayRaw([]byte(`{"bye":{}}{"bye":{}}`)) }, fault.Invalid},
	"nothing in a message": {"mallory", func(w *wire) { w.sayRaw([]byte(`{}`)) }, fault.Invalid},
	"unknown message":      {"mallory", func(w *wire) { w.sayRaw([]byte(`{"sudo":{}}`)) }, fault.Invalid},
	"deep nesting":         {"mallory", func(w *wire) { w.sayRaw([]byte(strings.Repeat("[", 15000))) }, fault.Invalid},
}

// TestAttackers tries each attack of a hostile participant beside two honest ones, who must notice nothing.
func TestAttackers(t *testing.T) {
	t.Parallel()
	victim, other := agent(1), attackerKey
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := &policy{}
			rules.set(tailnet.ClientID(other), victim.ID, true)
			s := newSite(t, coordinator.Options{Authorizer: rules})
			a := s.connect(t, "agent 1", key(100))
			a.announce(1)
			c := s.connect(t, "user 1", key(1))
			c.announce(1)
			c.subscribe(victim.ID)
			a.wait(isPeer(laptop(1).ID))
			a.ready(laptop(1).ID)
			c.wait(isPeer(victim.ID))

			m := s.connect(t, attack.credential, other)
			m.wait(isWelcome)
			attack.do(m)
			if attack.code != "" {
				deadline := m.wait(func(msg protocol.ServerMessage) bool {
					return isError(msg) && msg.Error.Code == attack.code
				})
				if got := names(deadline); len(got) != 0 {
					t.Fatalf("the attacker learned %q", got)
				}
				<-m.done
			}
			// Whatever the attack was, the others continue and have received nothing about it.
			c.announce(2)
			before := a.wait(isPeer(laptop(1).ID))
			a.announce(2)
			before = append(before, c.wait(isPeer(victim.ID))...)
			if len(before) != 0 {
				t.Fatalf("honest participants were told %q", names(before))
			}
			if p, ok := s.Lookup(tailnet.Addr(victim.ID)); !ok || p != victim {
				t.Fatalf("the victim's address belongs to %+v", p)
			}
		})
	}
}

func TestOversizeMessageEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, coordinator.Options{})
	m := s.connect(t, "mallory", key(999))
	m.wait(isWelcome)
	m.sayRaw([]byte(`{"bye":{` + strings.Repeat(" ", protocol.MaxClientMessage) + `}}`))
	<-m.done
	// The client sees the end of its connection before the server has taken the session out of its table.
	testwait.Until(t, "the session ends", func() error {
		if online := s.Stats().Online; online != 0 {
			return fmt.Errorf("%d are online", online)
		}
		return nil
	})
	if st := s.Stats(); st.Violations != 1 {
		t.Fatalf("stats are %+v, want one violation", st)
	}
}

// TestFlood checks that the server reads a flood at a bounded pace and keeps nothing of it.
func TestFlood(t *testing.T) {
	t.Parallel()
	rules := &policy{}
	s := newSite(t, coordinator.Options{Authorizer: coordinator.AuthorizerFunc(
		func(ctx context.Context, from coordinator.Principal, to coordinator.Target) error {
			rules.MaySee(ctx, from, to)
			if from.Name == "mallory" {
				return fault.New(fault.NotFound, "no such workspace")
			}
			return nil
		})})
	m := s.connect(t, "mallory", key(999))
	m.wait(isWelcome)
	ctx, cancel := context.WithCancel(t.Context())
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for ctx.Err() == nil {
			data := fmt.Appendf(nil, `{"subscribe":{"id":%q}}`, uuid.New())
			if m.conn.Write(ctx, data) != nil {
				return
			}
		}
	}()
	for range 100 {
		m.wait(isRefused)
	}
	// Meanwhile the server serves others.
	a := s.connect(t, "agent 1", key(100))
	a.announce(1)
	c := s.connect(t, "user 1", key(1))
	c.announce(1)
	c.subscribe(agent(1).ID)
	a.wait(isPeer(laptop(1).ID))
	a.ready(laptop(1).ID)
	c.wait(isPeer(agent(1).ID))
	cancel()
	<-flooded
	m.cut()
	<-m.done
	s.Kick(m.p.ID, "flood")
	if st := s.Stats(); st.Tunnels != 1 || st.ReadyTimeouts != 0 {
		t.Fatalf("stats are %+v, want one tunnel, introduced without a timeout", st)
	}
}

func TestHellosThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, coordinator.Options{})
	s.connect(t, "agent 1", key(100)).wait(isWelcome)
	many := url.Values{}
	for range protocol.MaxHelloSubscriptions + 1 {
		many.Add("subscribe", uuid.NewString())
	}
	for name, c := range map[string]struct {
		credential string
		key        tailnet.PublicKey
		query      url.Values
		want       fault.Code
	}{
		"no credential":          {"", key(1), nil, fault.Unauthenticated},
		"no version":             {"user 1", key(1), url.Values{"v": {""}}, fault.Invalid},
		"version 0":              {"user 1", key(1), url.Values{"v": {"0"}}, fault.Invalid},
		"no key":                 {"user 1", key(1), url.Values{"key": {""}}, fault.Invalid},
		"zero key":               {"user 1", tailnet.PublicKey{}, nil, fault.Invalid},
		"private key":            {"user 1", key(1), url.Values{"key": {"privkey:" + strings.Repeat("00", 32)}}, fault.Invalid},
		"too many subscriptions": {"user 1", key(1), many, fault.Invalid},
		"malformed subscription": {"user 1", key(1), url.Values{"subscribe": {"me"}}, fault.Invalid},
		"somebody's key":         {"agent 2", key(100), nil, fault.Conflict},
	} {
		conn, err := s.dial(t.Context(), c.credential, c.key, c.query)
		if err == nil {
			conn.Close(websock.StatusNormal, "")
		}
		if got := fault.CodeOf(err); got != c.want {
			t.Errorf("%s: got %v (%q), want %q", name, err, got, c.want)
		}
	}
}

// TestParticipantThatReadsNothing checks that a participant that reads nothing costs the others nothing, and loses its connection.
func TestParticipantThatReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		conn, err := s.Dialer(agent(1))(t.Context(), protocol.Hello{Version: 1, Key: key(9999)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(websock.StatusNormal, "")
		n := info(agent(1), key(9999), 1)
		data, err := json.Marshal(protocol.ClientMessage{Node: &n})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(t.Context(), data); err != nil {
			t.Fatal(err)
		}
		var wires []*wire
		for i := range uint64(200) {
			w := connect(t, s, laptop(i+1), key(i+1), agent(1).ID)
			w.announce(1)
			wires = append(wires, w)
		}
		synctest.Wait()
		if st := s.Stats(); st.Online != 201 || st.Dropped != 0 {
			t.Fatalf("stats are %+v", st)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if st := s.Stats(); st.Online != 200 || st.Lost != 1 || st.Dropped != 1 {
			t.Fatalf("stats are %+v, want the mute one lost and dropped", st)
		}
		known := []coordinator.Principal{agent(1)}
		for _, w := range wires {
			w.expect(known, "welcome", "peer agent 1 #1", "lost agent 1")
		}
	})
}

// TestManyConnectionsOfOneSession checks that a session that connects hundreds of times, each time as another node, keeps nobody else out.
func TestManyConnectionsOfOneSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		a := connect(t, s, agent(1), key(9999))
		a.announce(1)
		for i := range uint64(400) {
			m := laptop(i + 100)
			m.Subject, m.Session = laptop(100).Subject, "one"
			w := connect(t, s, m, key(i+100), agent(1).ID)
			w.announce(1)
		}
		synctest.Wait()
		began := time.Now()
		c := connect(t, s, laptop(1), key(1), agent(1).ID)
		c.announce(1)
		synctest.Wait()
		c.expect([]coordinator.Principal{agent(1)}, "welcome", "peer agent 1 #1")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("another user waited %s of the bubble's time", waited)
		}
		if st := s.Stats(); st.Online != 402 || st.Dropped != 0 {
			t.Errorf("stats are %+v", st)
		}
	})
}
