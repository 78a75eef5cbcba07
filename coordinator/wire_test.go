package coordinator_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// region is the one relay region of these tests.
const region = 7

func relayMap() tailnet.RelayMap {
	return tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: region, Code: "here", Name: "Here"}}}
}

// key returns a node key for tests that do not encrypt anything.
func key(n uint64) tailnet.PublicKey { return sha256.Sum256(fmt.Appendf(nil, "key %d", n)) }

func disco(n uint64) (k tailnet.DiscoKey) {
	copy(k[:], fmt.Sprintf("disco %d", n))
	return k
}

// id is a participant's id for tests.
func id(kind protocol.Kind, n int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %d", kind, n))
}

func server(n int) coordinator.Principal {
	return coordinator.Principal{Kind: protocol.KindServer, ID: id(protocol.KindServer, n), Name: fmt.Sprint("server ", n)}
}

func agent(n int) coordinator.Principal {
	return coordinator.Principal{Kind: protocol.KindAgent, ID: id(protocol.KindAgent, n), Name: fmt.Sprint("agent ", n)}
}

// laptop returns the principal of a client of user n, with key(n).
func laptop(n uint64) coordinator.Principal {
	return coordinator.Principal{
		Kind: protocol.KindClient, ID: tailnet.ClientID(key(n)), Name: fmt.Sprint("client ", n),
		Subject: id("user", int(n)),
	}
}

// info describes a node that is not behind a NAT.
func info(p coordinator.Principal, k tailnet.PublicKey, seq uint64) tailnet.NodeInfo {
	return tailnet.NodeInfo{
		ID: p.ID, Key: k, Disco: disco(seq), Region: region, Seq: seq, Measured: true,
		Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(seq%60000)+1)},
	}
}

// everyone allows every subscription that the kinds allow.
var everyone = coordinator.AuthorizerFunc(func(context.Context, coordinator.Principal, coordinator.Target) error { return nil })

// policy is an Authorizer whose decisions can be changed.
type policy struct {
	mu     sync.Mutex
	denied map[[2]uuid.UUID]bool
	err    error // instead of an answer
	asked  int
}

func (p *policy) MaySee(_ context.Context, from coordinator.Principal, to coordinator.Target) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.err != nil {
		return p.err
	}
	if p.denied[[2]uuid.UUID{from.ID, to.ID}] {
		return fault.New(fault.NotFound, "no such workspace")
	}
	return nil
}

func (p *policy) set(from, to uuid.UUID, deny bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.denied == nil {
		p.denied = make(map[[2]uuid.UUID]bool)
	}
	p.denied[[2]uuid.UUID{from, to}] = deny
}

func (p *policy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// relayLog is a Relay that records its calls.
type relayLog struct {
	mu       sync.Mutex
	admitted map[tailnet.PublicKey]bool
	hold     chan struct{} // if set, Revoke waits for it
	log      []string
}

func (r *relayLog) Admit(k tailnet.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admitted == nil {
		r.admitted = make(map[tailnet.PublicKey]bool)
	}
	r.admitted[k] = true
	r.log = append(r.log, "admit")
}

func (r *relayLog) Revoke(k tailnet.PublicKey) {
	if r.hold != nil {
		<-r.hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.admitted, k)
	r.log = append(r.log, "revoke")
}

func (r *relayLog) has(k tailnet.PublicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admitted[k]
}

// newServer makes a server that ends with the test.
func newServer(t testing.TB, opts coordinator.Options) *coordinator.Server {
	t.Helper()
	if opts.RelayMap == nil {
		opts.RelayMap = relayMap
	}
	if opts.Authorizer == nil {
		opts.Authorizer = everyone
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := coordinator.New(opts)
	t.Cleanup(func() { s.Close() })
	return s
}

// wire is a participant that speaks the protocol by hand.
type wire struct {
	t    testing.TB
	p    coordinator.Principal
	key  tailnet.PublicKey
	conn protocol.Conn

	mu   sync.Mutex
	got  []protocol.ServerMessage // since the last call of messages
	err  error                    // why reading ended
	done chan struct{}
}

// connect sends a hello inside the process and reads from then on.
func connect(t testing.TB, s *coordinator.Server, p coordinator.Principal, k tailnet.PublicKey, subscribe ...uuid.UUID) *wire {
	t.Helper()
	return greet(t, s, p, protocol.Hello{Version: protocol.Version, Key: k, Subscribe: subscribe})
}

// versionAsked is the last version in which destinations are asked whether they are ready.
const versionAsked = 3

// connectAsked is like connect, for a participant that the server asks.
func connectAsked(t testing.TB, s *coordinator.Server, p coordinator.Principal, k tailnet.PublicKey, subscribe ...uuid.UUID) *wire {
	t.Helper()
	return greet(t, s, p, protocol.Hello{Version: versionAsked, Key: k, Subscribe: subscribe})
}

// greet is like connect with any hello.
func greet(t testing.TB, s *coordinator.Server, p coordinator.Principal, h protocol.Hello) *wire {
	t.Helper()
	k := h.Key
	conn, err := s.Dialer(p)(t.Context(), h)
	if err != nil {
		t.Fatalf("connect as %s: %v", p.Name, err)
	}
	return newWire(t, conn, p, k)
}

func newWire(t testing.TB, conn protocol.Conn, p coordinator.Principal, k tailnet.PublicKey) *wire {
	w := &wire{t: t, p: p, key: k, conn: conn, done: make(chan struct{})}
	go w.read()
	t.Cleanup(func() {
		conn.Close(1000, "")
		<-w.done
	})
	return w
}

func (w *wire) read() {
	defer close(w.done)
	for {
		data, err := w.conn.Read(context.Background())
		var m protocol.ServerMessage
		if err == nil {
			m, err = protocol.DecodeServerMessage(data)
		}
		w.mu.Lock()
		if err != nil {
			w.err = err
			w.mu.Unlock()
			return
		}
		w.got = append(w.got, m)
		w.mu.Unlock()
	}
}

// say sends a message. It ignores a broken connection, which reading reports.
func (w *wire) say(m protocol.ClientMessage) {
	w.sayRaw(encodeMessage(m))
}

func encodeMessage(m protocol.ClientMessage) []byte { return []byte(encoded(m)) }

func encoded(m any) string {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func (w *wire) sayRaw(data []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.conn.Write(ctx, data); err != nil {
		w.t.Logf("%s: write: %v", w.p.Name, err)
	}
}

func (w *wire) announce(seq uint64) {
	n := info(w.p, w.key, seq)
	w.say(protocol.ClientMessage{Node: &n})
}

func ref(id uuid.UUID) *protocol.PeerRef { return &protocol.PeerRef{ID: id} }

func (w *wire) subscribe(id uuid.UUID)   { w.say(protocol.ClientMessage{Subscribe: ref(id)}) }
func (w *wire) unsubscribe(id uuid.UUID) { w.say(protocol.ClientMessage{Unsubscribe: ref(id)}) }
func (w *wire) ready(id uuid.UUID)       { w.say(protocol.ClientMessage{Ready: ref(id)}) }
func (w *wire) bye()                     { w.say(protocol.ClientMessage{Bye: &protocol.Bye{}}) }
func (w *wire) cut()                     { w.conn.Close(1001, "") }

// messages returns the messages since the last call. In a synctest bubble it first waits until no more will come.
func (w *wire) messages() []protocol.ServerMessage {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

// names describes messages as short texts, with peers by the names of the known principals.
func names(messages []protocol.ServerMessage, known ...coordinator.Principal) []string {
	name := func(id uuid.UUID) string {
		if i := slices.IndexFunc(known, func(p coordinator.Principal) bool { return p.ID == id }); i >= 0 {
			return known[i].Name
		}
		return id.String()
	}
	out := []string{}
	for _, m := range messages {
		switch {
		case m.Welcome != nil:
			out = append(out, "welcome")
		case m.Peer != nil:
			text := fmt.Sprintf("peer %s #%d", name(m.Peer.Info.ID), m.Peer.Info.Seq)
			if m.Peer.Ack {
				text += " ack"
			}
			if len(m.Peer.Info.Endpoints) == 0 {
				text += " apart"
			}
			out = append(out, text)
		case m.Lost != nil:
			out = append(out, "lost "+name(m.Lost.ID))
		case m.Gone != nil:
			out = append(out, "gone "+name(m.Gone.ID))
		case m.Refused != nil:
			out = append(out, fmt.Sprintf("refused %s: %s", name(m.Refused.ID), m.Refused.Code))
		case m.Unsubscribed != nil:
			out = append(out, "unsubscribed "+name(m.Unsubscribed.ID))
		case m.Relay != nil:
			out = append(out, fmt.Sprintf("relay %d", len(m.Relay.Regions)))
		case m.Notice != nil:
			out = append(out, "notice "+string(m.Notice.Kind))
		case m.Error != nil:
			out = append(out, "error "+string(m.Error.Code))
		}
	}
	return out
}

// expect fails unless exactly these messages came since the last call.
func (w *wire) expect(known []coordinator.Principal, want ...string) {
	w.t.Helper()
	got := names(w.messages(), known...)
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s got  %q\nwant %q", w.p.Name, got, want)
	}
}
