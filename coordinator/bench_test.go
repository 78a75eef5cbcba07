package coordinator_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// benchWire is a participant that signals each peer that is introduced to it, and is ready at once.
type benchWire struct {
	conn  protocol.Conn
	p     coordinator.Principal
	key   tailnet.PublicKey
	peers chan uint64 // sequence numbers
	done  chan struct{}
}

func benchConnect(b *testing.B, s *coordinator.Server, p coordinator.Principal, k tailnet.PublicKey) *benchWire {
	conn, err := s.Dialer(p)(b.Context(), protocol.Hello{Version: 1, Key: k})
	if err != nil {
		b.Fatal(err)
	}
	w := &benchWire{conn, p, k, make(chan uint64, 1<<15), make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			data, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			m, err := protocol.DecodeServerMessage(data)
			if err != nil {
				b.Error(err)
				return
			}
			if m.Peer == nil {
				continue
			}
			if m.Peer.Ack {
				w.say(b, fmt.Appendf(nil, `{"ready":{"id":%q}}`, m.Peer.Info.ID))
			}
			w.peers <- m.Peer.Info.Seq
		}
	}()
	b.Cleanup(func() { conn.Close(websock.StatusNormal, ""); <-w.done })
	return w
}

func (w *benchWire) say(b *testing.B, data []byte) {
	if err := w.conn.Write(context.Background(), data); err != nil {
		b.Error(err)
	}
}

func (w *benchWire) announce(b *testing.B, seq uint64) {
	n := info(w.p, w.key, seq)
	w.say(b, encodeMessage(protocol.ClientMessage{Node: &n}))
}

// fleet connects n agents.
func fleet(b *testing.B, s *coordinator.Server, n int) []*benchWire {
	agents := make([]*benchWire, n)
	for i := range agents {
		agents[i] = benchConnect(b, s, agent(i), key(uint64(100_000+i)))
		agents[i].announce(b, 1)
	}
	return agents
}

// BenchmarkIntroduce measures an introduction, from the subscription until both ends know of it, beside 10 000 connected agents.
func BenchmarkIntroduce(b *testing.B) {
	s := newServer(b, coordinator.Options{})
	agents := fleet(b, s, 10_000)
	c := benchConnect(b, s, laptop(1), key(1))
	c.announce(b, 1)
	i := 0
	for b.Loop() {
		a := agents[i%len(agents)]
		i++
		c.say(b, encodeMessage(protocol.ClientMessage{Subscribe: ref(a.p.ID)}))
		<-a.peers
		<-c.peers
		c.say(b, encodeMessage(protocol.ClientMessage{Unsubscribe: ref(a.p.ID)}))
	}
}

// BenchmarkFanOut measures how one change of the server's node reaches 10 000 agents.
func BenchmarkFanOut(b *testing.B) {
	s := newServer(b, coordinator.Options{})
	own := benchConnect(b, s, server(1), key(50))
	own.announce(b, 1)
	agents := fleet(b, s, 10_000)
	for range agents {
		<-own.peers
	}
	for _, a := range agents {
		<-a.peers
	}
	seq := uint64(1)
	for b.Loop() {
		seq++
		own.announce(b, seq)
		for _, a := range agents {
			awaitSeq(a.peers, seq)
		}
	}
	b.ReportMetric(float64(len(agents)), "peers/op")
}

// BenchmarkUpdate measures how one agent's change reaches its only client, beside 10 000 connected agents.
func BenchmarkUpdate(b *testing.B) {
	s := newServer(b, coordinator.Options{})
	a := fleet(b, s, 10_000)[77]
	c := benchConnect(b, s, laptop(1), key(1))
	c.announce(b, 1)
	c.say(b, encodeMessage(protocol.ClientMessage{Subscribe: ref(a.p.ID)}))
	<-a.peers
	<-c.peers
	seq := uint64(1)
	for b.Loop() {
		seq++
		a.announce(b, seq)
		awaitSeq(c.peers, seq)
	}
}

// awaitSeq receives until an announcement is at least as new as seq.
func awaitSeq(announced <-chan uint64, seq uint64) {
	for got := <-announced; got < seq; {
		got = <-announced
	}
}

// BenchmarkLookup measures the lookup of a mesh address's principal.
func BenchmarkLookup(b *testing.B) {
	s := newServer(b, coordinator.Options{})
	addr := tailnet.Addr(fleet(b, s, 10_000)[77].p.ID)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p, ok := s.Lookup(addr); !ok || p.ID == uuid.Nil {
				b.Error("not found")
				return
			}
		}
	})
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
