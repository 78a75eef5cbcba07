package peering_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/peering"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

var (
	here  = uuid.MustParse("11111111-1111-4111-8111-111111111111")
	there = uuid.MustParse("22222222-2222-4222-8222-222222222222")
	gone  = uuid.MustParse("33333333-3333-4333-8333-333333333333")
	key   = tailnet.PublicKey{1}
	pair  = protocol.LinkPair{From: here, To: there}
)

// table is a Table with one participant, here, of a kind.
type table struct {
	mu      sync.Mutex
	kind    protocol.Kind
	process func(context.Context) bool
	refuse  error
	applied []protocol.LinkMessage
}

func (x *table) Collect(l *peering.Link, out []protocol.LinkMessage) []protocol.LinkMessage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return l.Take(x, out)
}

func (x *table) Participant(id uuid.UUID) (protocol.LinkMessage, bool) {
	if id != here {
		return protocol.LinkMessage{Gone: &protocol.LinkGone{ID: id}}, true
	}
	p := &protocol.Present{ID: here, Kind: x.kind, Key: key, Stamp: 1, Version: protocol.Version}
	if x.kind == protocol.KindProxy {
		p.ID = tailnet.ClientID(key)
	}
	return protocol.LinkMessage{Present: p}, true
}

func (x *table) Subscription(_ *peering.Link, pair protocol.LinkPair) (protocol.LinkMessage, bool) {
	return protocol.LinkMessage{Want: &pair}, pair.From == here
}

func (x *table) Apply(_ *peering.Link, m protocol.LinkMessage) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.applied = append(x.applied, m)
	return x.refuse
}

func (x *table) Process(uuid.UUID, tailnet.PublicKey) func(context.Context) bool { return x.process }

// remote is the other server, as a test plays it.
type remote struct {
	*testing.T
	conn protocol.Conn
	end  chan error // receives why the link ended
}

// dial starts a link whose other end speaks a version.
func dial(t *testing.T, x *table, version int, before func(*peering.Link)) (*peering.Link, *remote) {
	t.Helper()
	near, conn := protocol.Pipe()
	f := &remote{t, conn, make(chan error, 1)}
	f.say(protocol.LinkMessage{Hello: &protocol.LinkHello{Version: version}})
	l, err := peering.New(t.Context(), there, near)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.hear(); got != "hello" {
		t.Fatalf("the first message is %s", got)
	}
	if before != nil {
		before(l)
	}
	go func() { f.end <- l.Serve(x, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(l.End)
	return l, f
}

func (f *remote) say(m protocol.LinkMessage) {
	f.Helper()
	if err := f.conn.Write(f.Context(), protocol.Encode(m)); err != nil {
		f.Fatal(err)
	}
}

// hear returns the kind of the next message.
func (f *remote) hear() string {
	f.Helper()
	data, err := f.conn.Read(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	if _, err := protocol.DecodeLinkMessage(data); err != nil {
		f.Fatal(err)
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(string(data), `{"`), `"`)
	return kind
}

func (f *remote) expect(want ...string) {
	f.Helper()
	for i := range want {
		if got := f.hear(); got != want[i] {
			f.Fatalf("message %d of %v is %s", i, want, got)
		}
	}
}

// TestOrder checks that a server hears of a participant before it hears what the participant wants, and of each once.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f := dial(t, &table{kind: protocol.KindAgent}, protocol.LinkVersion, func(l *peering.Link) {
			l.Punch(protocol.LinkPunch{LinkPair: pair})
			l.Ready(pair, key)
			for range 3 {
				l.Subscribed(pair)
				l.Subscribed(protocol.LinkPair{From: gone, To: there}) // the table has nothing to tell
				l.Changed(here)
			}
			l.Departed(gone)
			l.Departed(here) // it has returned since
		})
		f.expect("gone", "present", "want", "ready", "meet", "synced")
		l.Subscribed(pair)
		l.Changed(here)
		f.expect("present", "want")
		synctest.Wait()
		if got := l.Info(); got.Server != there || got.Sent != 8 || got.Received != 0 {
			t.Errorf("the link says %+v", got)
		}
		l.End()
		if err := <-f.end; err == nil {
			t.Error("the link ended without a reason")
		}
	})
}

// TestServerWithoutProxies checks that a server of an earlier version hears of no region proxies, which it would refuse.
func TestServerWithoutProxies(t *testing.T) {
	t.Parallel()
	for version, want := range map[int][]string{1: {"synced"}, protocol.LinkVersionProxies: {"present", "synced"}} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, f := dial(t, &table{kind: protocol.KindProxy}, version, func(l *peering.Link) { l.Changed(here) })
				f.expect(want...)
				l.End()
				<-f.end
			})
		})
	}
}

// answering is a connection whose other end answers pings until it is frozen.
type answering struct {
	protocol.Conn
	seen   atomic.Pointer[time.Time]
	frozen chan struct{}
}

func (c *answering) Ping(ctx context.Context) error {
	select {
	case <-c.frozen:
		<-ctx.Done()
		return ctx.Err()
	default:
	}
	now := time.Now()
	c.seen.Store(&now)
	return nil
}

func (c *answering) LastSeen() time.Time { return *c.seen.Load() }

// TestHeard checks that an idle link hears the other server at least every MeasureEvery, and when it was heard last
// once it is silent and when it has ended.
func TestHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, conn := protocol.Pipe()
		c, began := &answering{Conn: near, frozen: make(chan struct{})}, time.Now()
		c.seen.Store(&began)
		f := &remote{t, conn, make(chan error, 1)}
		f.say(protocol.LinkMessage{Hello: &protocol.LinkHello{Version: protocol.LinkVersion}})
		l, err := peering.New(t.Context(), there, c)
		if err != nil {
			t.Fatal(err)
		}
		go func() { f.end <- l.Serve(&table{}, slog.New(slog.DiscardHandler)) }()
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			if silent := time.Since(l.Heard()); silent >= peering.MeasureEvery {
				t.Fatalf("after %s an idle link has heard nothing for %s", time.Since(began), silent)
			}
		}
		close(c.frozen)
		time.Sleep(time.Minute)
		last := l.Heard()
		if silent := time.Since(last); silent < time.Minute {
			t.Errorf("a link that has been silent for a minute was heard %s ago", silent)
		}
		l.End()
		<-f.end
		if got := l.Heard(); !got.Equal(last) {
			t.Errorf("a link that has ended was heard at %s, before at %s", got, last)
		}
	})
}

// TestProbe checks both directions of a probe, and that a link that ends answers those in progress.
func TestProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f := dial(t, &table{process: func(context.Context) bool { return true }}, protocol.LinkVersion, nil)
		f.expect("synced")
		answers := make(chan bool)
		probe := func() {
			alive, err := l.Probe(t.Context(), here, key)
			if err != nil {
				t.Error(err)
			}
			answers <- alive
		}
		go probe()
		f.expect("probe")
		f.say(protocol.LinkMessage{Probed: &protocol.LinkProbed{N: 1, Answers: true}})
		if !<-answers {
			t.Error("the answer of the other server was lost")
		}
		f.say(protocol.LinkMessage{Probed: &protocol.LinkProbed{N: 1, Answers: true}}) // again: ignored
		f.say(protocol.LinkMessage{Probe: &protocol.LinkProbe{N: 7, ID: here, Key: key}})
		f.expect("probed")
		go probe()
		f.expect("probe")
		l.End()
		if <-answers {
			t.Error("a link that ended answers for the other server")
		}
		<-f.end
	})
}

// TestTooManyProbes checks the bounds of probes in progress: of this server's, which callers hear, and of the other's, which end the link.
func TestTooManyProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, f := dial(t, &table{process: func(ctx context.Context) bool { <-ctx.Done(); return false }}, protocol.LinkVersion, nil)
		f.expect("synced")
		var asking sync.WaitGroup
		for range protocol.MaxProbes {
			asking.Go(func() {
				if _, err := l.Probe(t.Context(), here, key); err != nil {
					t.Error(err)
				}
			})
		}
		for range protocol.MaxProbes {
			f.expect("probe")
		}
		if _, err := l.Probe(t.Context(), here, key); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("one probe too many: %v", err)
		}
		for n := range uint64(2*protocol.MaxProbes + 1) {
			f.say(protocol.LinkMessage{Probe: &protocol.LinkProbe{N: n, ID: here, Key: key}})
		}
		if err := <-f.end; err == nil || !strings.Contains(err.Error(), "probes at once") {
			t.Errorf("the link ended with %v", err)
		}
		asking.Wait()
	})
}

// TestLinkEnds checks what ends a link: a second hello, noise, and what the table refuses. Everything else reaches the table.
func TestLinkEnds(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]string{"hello": `{"hello":{"version":1}}`, "noise": `GET /`, "refused": `{"synced":{}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := &table{}
				_, f := dial(t, x, protocol.LinkVersion, nil)
				f.expect("synced")
				f.say(protocol.LinkMessage{Want: &pair})
				synctest.Wait()
				x.mu.Lock()
				if len(x.applied) != 1 || x.applied[0].Want == nil {
					t.Errorf("applied %+v", x.applied)
				}
				x.refuse = errors.New("no")
				x.mu.Unlock()
				if err := f.conn.Write(t.Context(), []byte(say)); err != nil {
					t.Fatal(err)
				}
				if err := <-f.end; err == nil {
					t.Error("the link ended without a reason")
				}
			})
		})
	}
}
