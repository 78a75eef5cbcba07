package coordinator_test

import (
	"context"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

var update = flag.Bool("update", false, "rewrite golden files")

// linkMessages returns one message of each type between servers.
func linkMessages() []coordinator.LinkMessage {
	n := info(client(1), key(1), 1)
	p := client(1)
	pair := coordinator.LinkPair{From: p.ID, To: agent(1).ID}
	return []coordinator.LinkMessage{
		{Hello: &coordinator.LinkHello{Version: 1}},
		{Present: &coordinator.Present{
			ID: p.ID, Kind: p.Kind, Name: p.Name, Subject: p.Subject, Session: "session", Addr: netip.MustParseAddr("192.0.2.7"), Detail: "{}",
			Key: n.Key, Stamp: 1_700_000_000_000_000, Version: coordinator.Version, RTT: 1500,
			Since: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Node: &n, Pass: "pass",
		}},
		{Present: &coordinator.Present{ID: agent(1).ID, Kind: coordinator.KindAgent, Key: key(100), Stamp: 1, Lost: true, Version: 1}},
		{Gone: &coordinator.LinkGone{ID: p.ID}},
		{Gone: &coordinator.LinkGone{ID: p.ID, Code: fault.Forbidden, Message: "the workspace was stopped or deleted"}},
		{Want: &pair}, {Unwant: &pair},
		{Ready: &coordinator.LinkReady{LinkPair: pair, Key: key(100)}},
		{Meet: &coordinator.LinkMeet{LinkPair: pair, FromMoves: 1, ToMoves: 2, Delay: 3000}},
		{Probe: &coordinator.LinkProbe{N: 1, ID: agent(1).ID, Key: key(100)}},
		{Probed: &coordinator.LinkProbed{N: 1, Answers: true}},
		{Synced: &coordinator.Synced{}},
	}
}

// TestLinkMessages holds the encoding of each message: servers of two versions speak to each other.
func TestLinkMessages(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for _, m := range linkMessages() {
		text := encoded(m)
		lines.WriteString(text + "\n")
		if _, err := coordinator.DecodeLinkMessage([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	path := filepath.Join("testdata", "link.jsonl")
	if *update {
		if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), lines.String()); diff != "" {
		t.Error(diff)
	}
}

func TestMalformedLinkMessages(t *testing.T) {
	t.Parallel()
	id := agent(1).ID.String()
	for name, text := range map[string]string{
		"empty":           `{}`,
		"two":             `{"synced":{},"hello":{"version":1}}`,
		"unknown":         `{"other":{}}`,
		"no id":           `{"gone":{"id":"00000000-0000-0000-0000-000000000000"}}`,
		"itself":          `{"want":{"from":"` + id + `","to":"` + id + `"}}`,
		"no key":          `{"present":{"id":"` + id + `","kind":"agent","stamp":1,"version":4,"since":"2026-11-22T12:00:00Z"}}`,
		"another's node":  strings.Replace(encoded(linkMessages()[1]), `"node":{"id":"`, `"node":{"id":"`+id[:8], 1),
		"negative delay":  `{"meet":{"from":"` + id + `","to":"` + client(1).ID.String() + `","from_moves":0,"to_moves":0,"delay":-1}}`,
		"a client's id":   strings.Replace(encoded(linkMessages()[2]), `"agent"`, `"client"`, 1),
		"more than 64 kB": `{"gone":{"message":"` + strings.Repeat("a", coordinator.MaxLinkMessage) + `"}}`,
	} {
		if m, err := coordinator.DecodeLinkMessage([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

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

// BenchmarkAnnounceFar measures one change of a participant of another server, beside 10 000 others of it, and what such a participant costs.
func BenchmarkAnnounceFar(b *testing.B) {
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
	say := func(m coordinator.LinkMessage) int {
		data := []byte(encoded(m))
		if err := theirs.Write(ctx, data); err != nil {
			b.Fatal(err)
		}
		return len(data)
	}
	present := func(i int, seq uint64) int {
		n := info(agent(i), key(uint64(1000+i)), seq)
		return say(coordinator.LinkMessage{Present: &coordinator.Present{
			ID: agent(i).ID, Kind: coordinator.KindAgent, Name: agent(i).Name, Key: n.Key, Stamp: 1, Version: coordinator.Version, Node: &n,
		}})
	}
	say(coordinator.LinkMessage{Hello: &coordinator.LinkHello{Version: 1}})
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
