package coordinator_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// machine holds the servers of a deployment and a model of what they must do together. Time is the bubble's.
type machine struct {
	rt     *rapid.T
	t      *testing.T
	c      *cluster
	rules  *policy
	relays []*relayLog // of each server
	all    []*actor
	keys   uint64
	cut    bool // a link is
}

// actor is one participant of the model.
type actor struct {
	p         coordinator.Principal
	w         *wire // nil: not connected
	at        int   // the server that it is, or was last, connected to
	lost      bool
	lostAt    time.Time
	key       tailnet.PublicKey // while connected or lost
	announced bool              // has a home relay, as the server knows it
	seq       uint64
	version   int  // of the protocol that it speaks
	slow      bool // never answers ready
	nat       int  // the NAT that it is behind
	moves     uint64
	wants     map[uuid.UUID]bool

	view  map[uuid.UUID]tailnet.NodeInfo // what its client has
	doubt map[uuid.UUID]bool             // what another server told and this one has not confirmed: a client removes it after the grace
	toldA map[uuid.UUID]promise          // the promises that its client received, for the order of introductions
	heard map[protocol.PeerGone]bool     // the goodbyes that its client received
}

// promise records since when an actor has known another's key, and whether it has answered ready.
type promise struct {
	key   tailnet.PublicKey
	since time.Time
	ready bool
}

func (a *actor) GoString() string { return a.p.Name }

func (a *actor) bound() bool { return a.w != nil || a.lost }

// What an actor is behind.
const (
	open = iota
	mapped
	unmeasured
)

const (
	machineReady = 5 * time.Second
	machineLost  = 10 * time.Minute
)

func TestStateMachine(t *testing.T) { runMachine(t, 1) }

// TestStateMachineOfServers checks that three servers do together what one does: participants connect to any of them and move.
func TestStateMachineOfServers(t *testing.T) { runMachine(t, 3) }

func runMachine(t *testing.T, servers int) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Hides Deadline, which must not be called inside a bubble. Rapid stops after a day of the bubble's time: use -count for more.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			m := &machine{rt: rt, t: t, rules: &policy{}, keys: 1000}
			m.c = newCluster(t, servers, func(_ int, opts *coordinator.Options) {
				m.relays = append(m.relays, &relayLog{})
				opts.Authorizer, opts.Relay = m.rules, m.relays[len(m.relays)-1]
				opts.ReadyTimeout, opts.LostTimeout = machineReady, machineLost
			})
			defer m.c.close()
			for i := range 3 {
				m.all = append(m.all, &actor{p: laptop(uint64(i))})
			}
			for i := range 2 {
				m.all = append(m.all, &actor{p: agent(i)}, &actor{p: server(i)})
			}
			for _, a := range m.all {
				a.wants = make(map[uuid.UUID]bool)
				a.forgetAll()
			}
			actions := map[string]func(*rapid.T){
				"":          func(*rapid.T) { m.step() },
				"connect":   func(*rapid.T) { m.connect(m.pick("who"), false) },
				"connect2":  func(*rapid.T) { m.connect(m.pick("who"), false) },
				"restart":   func(*rapid.T) { m.connect(m.pick("who"), true) },
				"announce":  func(*rapid.T) { m.announce(m.pick("who")) },
				"announce2": func(*rapid.T) { m.announce(m.pick("who")) },
				"subscribe": func(*rapid.T) { m.subscribe(m.pair()) },
				"subscrib2": func(*rapid.T) { m.subscribe(m.pair()) },
				"unsub":     func(*rapid.T) { m.unsubscribe(m.pair()) },
				"cut":       func(*rapid.T) { m.cutOff(m.pick("who")) },
				"bye":       func(*rapid.T) { m.leave(m.pick("who"), func(a *actor) { a.w.bye() }, false) },
				"kick": func(*rapid.T) {
					m.leave(m.pick("who"), func(a *actor) { m.c.servers[a.at].Kick(a.p.ID, "test") }, false)
				},
				"revoke":    func(*rapid.T) { m.leave(m.pick("who"), m.revoke, true) },
				"deny":      func(*rapid.T) { m.deny(m.pair()) },
				"allow":     func(*rapid.T) { from, to := m.pair(); m.rules.set(from.p.ID, to.p.ID, false) },
				"steal":     func(*rapid.T) { m.steal(m.pick("who"), m.pick("whose")) },
				"lie":       func(*rapid.T) { m.lie(m.pick("who"), m.pick("whose")) },
				"wait":      func(*rapid.T) { m.wait(time.Second, machineReady/2, machineReady) },
				"wait long": func(*rapid.T) { m.wait(machineReady*2, machineLost/2, machineLost) },
			}
			if servers > 1 {
				actions["break"] = func(*rapid.T) { m.breakLink() }
			}
			rt.Repeat(actions)
			m.converge()
		})
	})
}

func (a *actor) forgetAll() {
	a.view, a.toldA = make(map[uuid.UUID]tailnet.NodeInfo), make(map[uuid.UUID]promise)
	a.heard, a.doubt = make(map[protocol.PeerGone]bool), make(map[uuid.UUID]bool)
}

func (m *machine) pick(what string) *actor { return rapid.SampledFrom(m.all).Draw(m.rt, what) }

func (m *machine) get(id uuid.UUID) *actor {
	i := slices.IndexFunc(m.all, func(a *actor) bool { return a.p.ID == id })
	if i < 0 {
		m.rt.Fatalf("somebody was told of %s, who does not exist", id)
	}
	return m.all[i]
}

// pair draws two actors whose kinds may meet.
func (m *machine) pair() (from, to *actor) {
	from = m.pick("from")
	var targets []*actor
	for _, a := range m.all {
		switch from.p.Kind {
		case protocol.KindServer:
			if a != from {
				targets = append(targets, a)
			}
		case protocol.KindClient:
			if a.p.Kind == protocol.KindAgent || a.p.Kind == protocol.KindServer {
				targets = append(targets, a)
			}
		case protocol.KindAgent:
			if a.p.Kind == protocol.KindServer {
				targets = append(targets, a)
			}
		}
	}
	return from, rapid.SampledFrom(targets).Draw(m.rt, "to")
}

func (m *machine) denied(from, to uuid.UUID) bool {
	m.rules.mu.Lock()
	defer m.rules.mu.Unlock()
	return m.rules.denied[[2]uuid.UUID{from, to}]
}

// server draws the server that an actor connects to next. Servers' own nodes stay, and while a link is cut, so does everyone.
func (m *machine) server(a *actor) int {
	switch {
	case len(m.c.servers) == 1:
		return 0
	case a.p.Kind == protocol.KindServer:
		return slices.Index(m.all, a) % len(m.c.servers)
	case m.cut && a.bound():
		return a.at
	}
	return rapid.IntRange(0, len(m.c.servers)-1).Draw(m.rt, "server")
}

// revoke does what the database does: it tells every server.
func (m *machine) revoke(a *actor) {
	for _, s := range m.c.servers {
		s.Revoke(a.p.ID, "test")
	}
}

// breakLink cuts a link, and joins it again after a few actions that the other side misses.
func (m *machine) breakLink() {
	i := rapid.IntRange(0, len(m.c.servers)-2).Draw(m.rt, "i")
	j := rapid.IntRange(i+1, len(m.c.servers)-1).Draw(m.rt, "j")
	m.c.cut(i, j)
	m.cut = true
	synctest.Wait()
	for range rapid.IntRange(0, 3).Draw(m.rt, "missed") {
		switch rapid.IntRange(0, 6).Draw(m.rt, "action") {
		case 0, 1:
			if a := m.pick("who"); a.bound() {
				m.connect(a, rapid.Bool().Draw(m.rt, "restart"))
			}
		case 2:
			m.announce(m.pick("who"))
		case 3:
			m.subscribe(m.pair())
		case 4:
			m.unsubscribe(m.pair())
		case 5:
			m.cutOff(m.pick("who"))
		case 6:
			m.leave(m.pick("who"), func(a *actor) { a.w.bye() }, false)
		}
		m.receive()
	}
	m.c.join(i, j)
	m.cut = false
	synctest.Wait()
}

func (m *machine) connect(a *actor, restart bool) {
	was, moved := a.at, false
	if at := m.server(a); at != was {
		a.at, moved = at, a.bound()
	}
	if restart && a.p.Kind != protocol.KindClient || a.key == (tailnet.PublicKey{}) {
		m.keys++
		fresh := key(m.keys)
		if a.p.Kind == protocol.KindClient {
			fresh = key(uint64(slices.Index(m.all, a)))
		}
		if a.bound() {
			m.removed(a, false)
		}
		a.forgetAll()
		a.key = fresh
	}
	a.toldA = make(map[uuid.UUID]promise) // the server asks it again
	a.lost, a.slow = false, rapid.Bool().Draw(m.rt, "slow")
	a.version = rapid.SampledFrom([]int{versionAsked, protocol.Version}).Draw(m.rt, "version")
	if a.w = nil; moved && a.p.Kind == protocol.KindAgent {
		for _, b := range m.all {
			if b.p.Kind == protocol.KindServer {
				delete(a.wants, b.p.ID) // another server knows no better than that agents see it
			}
		}
	}
	a.w = greet(m.t, m.c.servers[a.at], a.p, protocol.Hello{Version: a.version, Key: a.key})
	synctest.Wait()
	if moved {
		for id := range a.view {
			a.doubt[id] = true
		}
		for id := range a.wants { // as a client does on every welcome
			a.w.subscribe(id)
		}
		synctest.Wait()
	}
	for _, b := range m.all { // agents see their server without asking
		if b.w == nil || b == a || b.at != a.at {
			continue
		}
		if a.p.Kind == protocol.KindAgent && b.p.Kind == protocol.KindServer && !m.denied(a.p.ID, b.p.ID) {
			a.wants[b.p.ID] = true
		}
		if b.p.Kind == protocol.KindAgent && a.p.Kind == protocol.KindServer && !m.denied(b.p.ID, a.p.ID) {
			b.wants[a.p.ID] = true
		}
	}
}

// removed applies the end of a participant to the model.
func (m *machine) removed(a *actor, forGood bool) {
	a.w, a.lost, a.announced, a.key = nil, false, false, tailnet.PublicKey{}
	clear(a.wants)
	a.forgetAll()
	if forGood {
		for _, b := range m.all {
			delete(b.wants, a.p.ID)
		}
	}
}

func (m *machine) announce(a *actor) {
	if a.w == nil {
		return
	}
	a.seq++
	a.announced = true
	n := info(a.p, a.key, a.seq)
	switch a.nat = rapid.IntRange(open, unmeasured).Draw(m.rt, "NAT"); a.nat {
	case mapped:
		n.Endpoints[0] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(slices.Index(m.all, a))}), 1)
		n.Mapped = n.Endpoints[0]
	case unmeasured:
		n.Measured = false
	}
	if rapid.Bool().Draw(m.rt, "moved") { // what is known about peers behind NATs is void for a node, too
		a.moves++
		for id, known := range a.view {
			if known.Mapped.IsValid() {
				known.Endpoints = nil
				a.view[id] = known
			}
		}
	}
	n.Moves = a.moves
	a.w.say(protocol.ClientMessage{Node: &n})
}

func (m *machine) subscribe(from, to *actor) {
	if from.w == nil {
		return
	}
	from.w.subscribe(to.p.ID)
	if !m.denied(from.p.ID, to.p.ID) {
		from.wants[to.p.ID] = true
	}
}

func (m *machine) unsubscribe(from, to *actor) {
	if from.w != nil {
		from.w.unsubscribe(to.p.ID)
		delete(from.wants, to.p.ID)
	}
}

func (m *machine) cutOff(a *actor) {
	if a.w != nil {
		a.w.cut()
		a.w, a.lost, a.lostAt = nil, true, time.Now()
	}
}

func (m *machine) leave(a *actor, do func(*actor), forGood bool) {
	if a.w == nil && !(a.lost && forGood) {
		return
	}
	do(a)
	synctest.Wait()
	m.removed(a, forGood)
	if forGood {
		time.Sleep(time.Second) // a hello of the same instant is refused
	}
}

func (m *machine) deny(from, to *actor) {
	m.rules.set(from.p.ID, to.p.ID, true)
	for _, s := range m.c.servers {
		if err := s.Recheck(context.Background(), to.p.ID); err != nil {
			m.rt.Fatalf("recheck: %v", err)
		}
	}
	delete(from.wants, to.p.ID)
}

// steal sends a hello with another's key.
func (m *machine) steal(a, victim *actor) {
	if a == victim || !victim.bound() || a.bound() {
		return
	}
	conn, err := m.c.servers[m.server(a)].Dialer(a.p)(context.Background(), protocol.Hello{Version: 1, Key: victim.key})
	if err == nil {
		conn.Close(1000, "")
		m.rt.Fatalf("%s got in with the key of %s", a.p.Name, victim.p.Name)
	}
}

// lie announces another's id or key, which ends the liar's connection.
func (m *machine) lie(a, victim *actor) {
	if a == victim || a.w == nil || !victim.bound() {
		return
	}
	n := info(a.p, a.key, 1<<40)
	if rapid.Bool().Draw(m.rt, "lie about the id") {
		n.ID = victim.p.ID
	} else {
		n.Key = victim.key
	}
	m.leave(a, func(a *actor) { a.w.say(protocol.ClientMessage{Node: &n}) }, false)
}

func (m *machine) wait(times ...time.Duration) {
	time.Sleep(rapid.SampledFrom(times).Draw(m.rt, "time"))
	m.expire()
}

func (m *machine) expire() {
	for _, a := range m.all {
		if a.lost && time.Since(a.lostAt) >= machineLost {
			m.removed(a, false)
		}
	}
}

// step records the received messages, and checks what must hold at any time.
func (m *machine) step() {
	synctest.Wait()
	m.expire()
	m.receive()
	for i := range m.c.servers {
		m.listed(i)
	}
}

// receive records the received messages.
func (m *machine) receive() {
	synctest.Wait()
	for again := true; again; { // answers lead to more messages
		again = false
		for _, a := range m.all {
			if a.w == nil {
				continue
			}
			for _, msg := range a.w.messages() {
				m.received(a, msg)
				again = true
			}
		}
	}
}

// listed checks the table of a server.
func (m *machine) listed(i int) {
	s, relay := m.c.servers[i], m.relays[i]
	online, gone := 0, 0
	held := make(map[string]string)
	for _, p := range s.Peers() {
		a := m.get(p.ID)
		if !a.bound() || p.Online != (a.w != nil) {
			m.rt.Fatalf("server %d: %s is listed with online=%v; the model says connected %v, lost %v", i, p.Name, p.Online, a.w != nil, a.lost)
		}
		if (p.Server == uuid.Nil) != (a.at == i) || p.Server != uuid.Nil && p.Server != m.c.ids[a.at] {
			m.rt.Fatalf("server %d: %s is listed at server %s, not %d", i, p.Name, p.Server, a.at)
		}
		if other, ok := held[p.KeyFingerprint]; ok {
			m.rt.Fatalf("one key of both %s and %s", other, p.Name)
		}
		held[p.KeyFingerprint] = p.Name
		if !relay.has(a.key) {
			m.rt.Fatalf("relay %d does not admit %s", i, p.Name)
		}
		online++
	}
	for _, a := range m.all {
		if !a.bound() {
			gone++
		}
		if _, ok := s.Lookup(tailnet.Addr(a.p.ID)); ok != a.bound() {
			m.rt.Fatalf("server %d: %s is found by its address: %v", i, a.p.Name, ok)
		}
	}
	relay.mu.Lock()
	admitted := len(relay.admitted)
	relay.mu.Unlock()
	if online+gone != len(m.all) || admitted != online {
		m.rt.Fatalf("server %d: %d participants in the table, %d admitted by the relay, %d gone of %d", i, online, admitted, gone, len(m.all))
	}
}

func (m *machine) received(a *actor, msg protocol.ServerMessage) {
	switch {
	case msg.Peer != nil:
		n := msg.Peer.Info
		b := m.get(n.ID)
		apart := m.cut && a.at != b.at // the server may not know about changes
		if !apart {
			m.allowed(a, b)
		}
		m.order(a, b, msg.Peer)
		if n.Key != b.key && b.bound() && !apart {
			m.rt.Fatalf("%s was told an old key of %s", a.p.Name, b.p.Name)
		}
		if old, ok := a.view[n.ID]; ok && old.Key != n.Key && !a.doubt[n.ID] {
			m.rt.Fatalf("%s was told a new key of %s without gone", a.p.Name, b.p.Name)
		}
		if old := a.view[n.ID]; len(n.Endpoints) == 0 && n.Moves == old.Moves {
			n.Endpoints, n.Mapped = old.Endpoints, old.Mapped
		}
		a.view[n.ID] = n
		delete(a.doubt, n.ID)
		known := a.toldA[n.ID]
		if known.key != n.Key || msg.Peer.Ack {
			known = promise{key: n.Key, since: time.Now()}
		}
		if msg.Peer.Ack && !a.slow {
			known.ready = true
			a.w.ready(n.ID)
		}
		a.toldA[n.ID] = known
	case msg.Gone != nil:
		if key := a.view[msg.Gone.ID].Key; key != msg.Gone.Key && (!key.IsZero() || !a.heard[*msg.Gone]) {
			m.rt.Fatalf("%s was told that a key of %s is gone which it did not know", a.p.Name, m.get(msg.Gone.ID).p.Name)
		}
		a.heard[*msg.Gone] = true // the next connection may repeat it
		delete(a.view, msg.Gone.ID)
		delete(a.toldA, msg.Gone.ID)
	case msg.Lost != nil:
		if _, ok := a.view[msg.Lost.ID]; !ok {
			m.rt.Fatalf("%s was told that %s is lost, whom it did not know", a.p.Name, m.get(msg.Lost.ID).p.Name)
		}
	case msg.Unsubscribed != nil:
		b := m.get(msg.Unsubscribed.ID)
		if _, ok := a.view[b.p.ID]; ok && !a.doubt[b.p.ID] && !a.wants[b.p.ID] && !b.wants[a.p.ID] {
			m.rt.Fatalf("%s was told that it sees %s no longer, and not that it is gone", a.p.Name, b.p.Name)
		}
	case msg.Refused != nil:
		if code := msg.Refused.Code; code != fault.NotFound && code != fault.Forbidden {
			m.rt.Fatalf("%s was refused with %s", a.p.Name, code)
		}
	}
}

// allowed checks that a participant learns of a peer only if one of the two has asked for it and may see it.
func (m *machine) allowed(a, b *actor) {
	if !a.wants[b.p.ID] && !b.wants[a.p.ID] {
		m.rt.Fatalf("%s was told of %s, and neither asked for the other and may see it", a.p.Name, b.p.Name)
	}
	if (!a.wants[b.p.ID] || m.denied(a.p.ID, b.p.ID)) && (!b.wants[a.p.ID] || m.denied(b.p.ID, a.p.ID)) {
		m.rt.Fatalf("%s was told of %s against the rules", a.p.Name, b.p.Name)
	}
}

// order checks the order of introductions: only a destination (asked for an ack, in earlier versions) may learn of a peer first; an
// initiator learns of it when the destination has answered ready, has had time to, or is not asked.
func (m *machine) order(a, b *actor, u *protocol.PeerUpdate) {
	if u.Ack && a.version > versionAsked {
		m.rt.Fatalf("%s is asked whether it is ready", a.p.Name)
	}
	if u.Ack || a.view[b.p.ID].Key == u.Info.Key {
		return
	}
	if a.at != b.at {
		return // two servers may disagree on who initiates: then a participant of an earlier version is not asked
	}
	initiates := a.p.Kind == protocol.KindClient && b.p.Kind == protocol.KindAgent // else either may
	if b.version > versionAsked || a.version > versionAsked && !initiates {
		return
	}
	known := b.toldA[a.p.ID]
	if known.key == a.key && (known.ready || time.Since(known.since) >= machineReady) {
		return
	}
	m.rt.Fatalf("%s learned of %s, which was told of it %s ago (with the right key: %v) and said ready: %v",
		a.p.Name, b.p.Name, time.Since(known.since), known.key == a.key, known.ready)
}

// converge lets everything settle. Then every online participant knows exactly the peers it should.
func (m *machine) converge() {
	m.step()
	for _, a := range m.all {
		m.announce(a)
	}
	m.step()
	for range 3 {
		time.Sleep(2 * machineReady)
		m.step()
	}
	for _, a := range m.all {
		for _, b := range m.all {
			if a == b || a.w == nil || b.w == nil {
				continue
			}
			got, known := a.view[b.p.ID]
			known = known && !a.doubt[b.p.ID]
			want := a.wants[b.p.ID] || b.wants[a.p.ID]
			if known != want {
				m.rt.Fatalf("%s knows %s: %v, want %v (it wants it: %v, is wanted: %v; knows %v)",
					a.p.Name, b.p.Name, known, want, a.wants[b.p.ID], b.wants[a.p.ID], slices.Collect(maps.Keys(a.view)))
			}
			if known && (got.Key != b.key || got.Seq != b.seq) {
				m.rt.Fatalf("%s knows %s as %s", a.p.Name, b.p.Name, fmt.Sprintf("#%d, want #%d", got.Seq, b.seq))
			}
			meets := a.nat == open || b.nat == open || a.nat == mapped && b.nat == mapped
			if known && meets && len(got.Endpoints) == 0 {
				m.rt.Fatalf("%s was not told where %s is: they are behind %d and %d", a.p.Name, b.p.Name, a.nat, b.nat)
			}
		}
	}
}
