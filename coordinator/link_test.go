package coordinator_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
)

// TestStrangeServers checks that a link ends with an error if the other side is of another version, or not a server.
func TestStrangeServers(t *testing.T) {
	t.Parallel()
	s := newServer(t, coordinator.Options{ID: id("process", 0)})
	for name, first := range map[string]string{"old": `{"hello":{"version":0}}`, "not a hello": `{"synced":{}}`, "noise": `GET / HTTP/1.1`} {
		ours, theirs := newPipeForTest()
		if err := theirs.Write(t.Context(), []byte(first)); err != nil {
			t.Fatal(err)
		}
		if err := s.Link(t.Context(), id("process", 1), ours); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ours, _ := newPipeForTest()
	if err := s.Link(t.Context(), id("process", 0), ours); err == nil {
		t.Error("a server was linked to itself")
	}
	if got := s.Replicas(); len(got) != 0 {
		t.Errorf("linked to %v", got)
	}
}

// TestHeardServers checks what a server knows about when it heard others, while it has a link and afterwards.
func TestHeardServers(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		synctest.Wait()
		s, never := c.servers[0], newServer(t, coordinator.Options{ID: id("process", 9)})
		if links, last := never.HeardServers(time.Time{}); links != 0 || !last.IsZero() {
			t.Errorf("a server without others heard %d of them, last at %s", links, last)
		}
		if links, last := s.HeardServers(time.Now().Add(-time.Second)); links != 1 || time.Since(last) != 0 {
			t.Errorf("linked: %d links, heard %s ago", links, time.Since(last))
		}
		if links, _ := s.HeardServers(time.Now()); links != 0 {
			t.Errorf("%d links were heard later than now", links)
		}
		c.cut(0, 1)
		synctest.Wait()
		time.Sleep(time.Minute)
		if links, last := s.HeardServers(time.Now().Add(-time.Hour)); links != 0 || time.Since(last) != time.Minute {
			t.Errorf("a minute after the link's end: %d links, heard %s ago", links, time.Since(last))
		}
		c.join(0, 1)
		synctest.Wait()
		if links, last := s.HeardServers(time.Now().Add(-time.Second)); links != 1 || time.Since(last) != 0 {
			t.Errorf("linked again: %d links, heard %s ago", links, time.Since(last))
		}
	})
}

// BenchmarkAnnounceRemote measures one change of a participant of another server, beside 10 000 others of it, and what
// such a participant costs.
func BenchmarkAnnounceRemote(b *testing.B) {
	var done sync.WaitGroup
	s := newServer(b, coordinator.Options{ID: id("process", 0)})
	ours, theirs := newPipeForTest()
	ctx, cancel := context.WithCancel(context.Background())
	done.Go(func() { s.Link(ctx, id("process", 1), ours) })
	done.Go(func() {
		for {
			if _, err := theirs.Read(ctx); err != nil {
				return
			}
		}
	})
	defer done.Wait()
	defer cancel()
	say := func(m protocol.LinkMessage) int {
		data := []byte(encoded(m))
		if err := theirs.Write(ctx, data); err != nil {
			b.Fatal(err)
		}
		return len(data)
	}
	present := func(i int, seq uint64) int {
		n := info(agent(i), key(uint64(1000+i)), seq)
		return say(protocol.LinkMessage{Present: &protocol.Present{
			ID: agent(i).ID, Kind: protocol.KindAgent, Name: agent(i).Name, Key: n.Key, Stamp: 1, Version: protocol.Version, Node: &n,
		}})
	}
	say(protocol.LinkMessage{Hello: &protocol.LinkHello{Version: 1}})
	const participants = 10_000
	before := heap()
	bytes := 0
	for i := range participants {
		bytes += present(i, 1)
	}
	for s.Stats().Online < participants {
		time.Sleep(time.Millisecond)
	}
	each := float64(heap()-before) / participants
	seq := uint64(1)
	for b.Loop() {
		seq++
		present(int(seq%participants), seq)
	}
	b.ReportMetric(each, "B/participant")
	b.ReportMetric(float64(bytes)/participants, "wire-B/participant")
}
