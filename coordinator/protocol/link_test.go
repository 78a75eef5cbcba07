package protocol_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

var update = flag.Bool("update", false, "rewrite golden files")

// linkMessages returns one message of each type between servers.
func linkMessages() []protocol.LinkMessage {
	n := laptop(1)
	pair := protocol.LinkPair{From: n.ID, To: agent(1).ID}
	return []protocol.LinkMessage{
		{Hello: &protocol.LinkHello{Version: 1}},
		{Present: &protocol.Present{
			ID: n.ID, Kind: protocol.KindClient, Name: "client 1", Subject: id("user", 1), Session: "session", Addr: netip.MustParseAddr("192.0.2.7"), Detail: "{}",
			Key: n.Key, Stamp: 1_700_000_000_000_000, Version: protocol.Version, RTT: 1500,
			Since: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Node: &n, Pass: "pass",
		}},
		{Present: &protocol.Present{ID: agent(1).ID, Kind: protocol.KindAgent, Key: key(100), Stamp: 1, Lost: true, Version: 1}},
		{Gone: &protocol.LinkGone{ID: n.ID}},
		{Gone: &protocol.LinkGone{ID: n.ID, Code: fault.Forbidden, Message: "the workspace was stopped or deleted"}},
		{Want: &pair}, {Unwant: &pair},
		{Ready: &protocol.LinkReady{LinkPair: pair, Key: key(100)}},
		{Punch: &protocol.LinkPunch{LinkPair: pair, FromMoves: 1, ToMoves: 2, Delay: 3000}},
		{Probe: &protocol.LinkProbe{N: 1, ID: agent(1).ID, Key: key(100)}},
		{Probed: &protocol.LinkProbed{N: 1, Answers: true}},
		{Synced: &protocol.Synced{}},
	}
}

// TestLinkMessages holds the encoding of each message: servers of two versions speak to each other.
func TestLinkMessages(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for _, m := range linkMessages() {
		text := encoded(m)
		lines.WriteString(text + "\n")
		if _, err := protocol.DecodeLinkMessage([]byte(text)); err != nil {
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
		"negative delay":  `{"meet":{"from":"` + id + `","to":"` + laptop(1).ID.String() + `","from_moves":0,"to_moves":0,"delay":-1}}`,
		"a client's id":   strings.Replace(encoded(linkMessages()[2]), `"agent"`, `"client"`, 1),
		"more than 64 kB": `{"gone":{"message":"` + strings.Repeat("a", protocol.MaxLinkMessage) + `"}}`,
	} {
		if m, err := protocol.DecodeLinkMessage([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// TestForgedAnnouncements checks that a server announces nothing that others could take for another participant, or that
// is too long for them.
func TestForgedAnnouncements(t *testing.T) {
	t.Parallel()
	announced := func(kind protocol.Kind) protocol.Present {
		n := laptop(1)
		if kind == protocol.KindAgent {
			n = agent(1)
		}
		return protocol.Present{ID: n.ID, Kind: kind, Key: n.Key, Stamp: 1, Version: protocol.MinVersion, Node: &n}
	}
	long := func(n int) string { return strings.Repeat("a", n+1) }
	for name, forge := range map[string]func(*protocol.Present){
		"no id":                   func(p *protocol.Present) { p.ID = uuid.Nil },
		"no key":                  func(p *protocol.Present) { p.Key = tailnet.PublicKey{} },
		"an unknown kind":         func(p *protocol.Present) { p.Kind = "other" },
		"another's id":            func(p *protocol.Present) { p.ID = agent(2).ID },
		"another's key":           func(p *protocol.Present) { p.Key = key(200) },
		"a node with another id":  func(p *protocol.Present) { p.Node.ID = agent(2).ID },
		"a node with another key": func(p *protocol.Present) { p.Node.Key = key(200) },
		"no stamp":                func(p *protocol.Present) { p.Stamp = 0 },
		"an old version":          func(p *protocol.Present) { p.Version = protocol.MinVersion - 1 },
		"a negative round trip":   func(p *protocol.Present) { p.RTT = -1 },
		"a long round trip":       func(p *protocol.Present) { p.RTT = time.Hour.Microseconds() },
		"a long name":             func(p *protocol.Present) { p.Name = long(protocol.MaxLinkText) },
		"a long session":          func(p *protocol.Present) { p.Session = long(protocol.MaxLinkText) },
		"a long detail":           func(p *protocol.Present) { p.Detail = long(protocol.MaxDetail) },
		"a long pass":             func(p *protocol.Present) { p.Pass = long(protocol.MaxPass) },
	} {
		for _, kind := range []protocol.Kind{protocol.KindAgent, protocol.KindClient} {
			p := announced(kind)
			if err := p.Check(); err != nil {
				t.Fatalf("an honest %s: %v", kind, err)
			}
			forge(&p)
			if p.Check() == nil {
				t.Errorf("%s: %s is accepted", kind, name)
			}
		}
	}
}
