package protocol_test

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// again encodes a decoded message and decodes it again: both must be equal, or two readers of one message could disagree.
func again[M any](t *testing.T, m M, decode func([]byte) (M, error)) {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("encode %+v: %v", m, err)
	}
	twin, err := decode(data)
	if err != nil {
		t.Fatalf("decode %s: %v", data, err)
	}
	second, err := json.Marshal(twin)
	if err != nil || string(second) != string(data) {
		t.Fatalf("%s became %s (%v)", data, second, err)
	}
}

// set returns how many fields of a message are set.
func set(m any) int {
	n := 0
	for v, i := reflect.ValueOf(m), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func checkInfo(t *testing.T, n tailnet.NodeInfo) {
	t.Helper()
	if n.Key.IsZero() || n.Region < 0 || len(n.Endpoints) > protocol.MaxEndpoints {
		t.Fatalf("accepted %+v", n)
	}
	for _, ep := range n.Endpoints {
		if !ep.IsValid() || ep.Port() == 0 || tailnet.Prefix.Contains(ep.Addr()) || ep.Addr().IsMulticast() {
			t.Fatalf("accepted endpoint %s", ep)
		}
	}
}

func FuzzDecodeClientMessage(f *testing.F) {
	n := agent(1)
	for _, m := range []protocol.ClientMessage{
		{Node: &n}, {Subscribe: ref(agent(1).ID)}, {Unsubscribe: ref(agent(1).ID)}, {Ready: ref(agent(1).ID)},
		{Restore: &protocol.Restore{Peers: []protocol.PeerPass{{ID: agent(1).ID, Key: key(1), Pass: "pass"}}}},
		{Bye: &protocol.Bye{}},
	} {
		data, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add([]byte(strings.ToUpper(string(data))))
	}
	f.Add([]byte(`{"bye":{},"ready":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := protocol.DecodeClientMessage(data)
		if err != nil {
			return
		}
		if set(m) != 1 || len(data) > protocol.MaxClientMessage {
			t.Fatalf("accepted %s as %+v", data, m)
		}
		if m.Node != nil {
			checkInfo(t, *m.Node)
		}
		if m.Restore != nil && (len(m.Restore.Peers) == 0 || len(m.Restore.Peers) > protocol.MaxRestore) {
			t.Fatalf("accepted %d held peers", len(m.Restore.Peers))
		}
		again(t, m, protocol.DecodeClientMessage)
	})
}

func FuzzDecodeServerMessage(f *testing.F) {
	n := agent(1)
	relays := tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 7, Code: "here", Name: "Here"}}}
	for _, m := range []protocol.ServerMessage{
		{Welcome: &protocol.Welcome{Version: 1, ID: n.ID, Relays: relays, GraceSeconds: 900}},
		{Peer: &protocol.PeerUpdate{Info: n, Kind: protocol.KindAgent, Ack: true}},
		{Lost: ref(n.ID)}, {Gone: &protocol.PeerGone{ID: n.ID, Key: n.Key}},
		{Refused: &protocol.Refused{ID: n.ID, Code: fault.NotFound, Message: "no"}}, {Unsubscribed: ref(n.ID)}, {Relay: &relays},
		{Pass: &protocol.PeerPass{ID: n.ID, Key: n.Key, Pass: "pass"}}, {Notice: &protocol.Notice{Kind: protocol.NoticeDrain}}, {Error: &protocol.ErrorMessage{Code: fault.Conflict}},
	} {
		data, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := protocol.DecodeServerMessage(data)
		if err != nil {
			return
		}
		if set(m) != 1 {
			t.Fatalf("accepted %s as %+v", data, m)
		}
		if m.Peer != nil {
			checkInfo(t, m.Peer.Info)
		}
		if m.Welcome != nil && m.Welcome.Grace() < 0 {
			t.Fatalf("accepted a grace of %s", m.Welcome.Grace())
		}
		again(t, m, protocol.DecodeServerMessage)
	})
}

func FuzzDecodeLinkMessage(f *testing.F) {
	for _, m := range linkMessages() {
		f.Add([]byte(encoded(m)))
	}
	f.Add([]byte(`{"gone":{"id":"00000000-0000-0000-0000-000000000000"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := protocol.DecodeLinkMessage(data)
		if err != nil {
			return
		}
		if set(m) != 1 || len(data) > protocol.MaxLinkMessage {
			t.Fatalf("accepted %s as %+v", data, m)
		}
		if p := m.Present; p != nil {
			if p.Key.IsZero() || !p.Kind.Valid() || p.Stamp <= 0 || len(p.Detail) > protocol.MaxDetail || len(p.Pass) > protocol.MaxPass {
				t.Fatalf("accepted %+v", p)
			}
			if p.Node != nil {
				checkInfo(t, *p.Node)
			}
		}
		again(t, m, protocol.DecodeLinkMessage)
	})
}

func FuzzParseHello(f *testing.F) {
	f.Add("v=1&key="+key(1).String(), "")
	f.Add("v=1&key="+key(1).String()+"&subscribe="+agent(1).ID.String(), "")
	f.Add("v=4&key="+key(1).String()+"&name=ada/dev.main", encoded(laptop(1)))
	f.Add("v=99999999999999999999&key=nodekey:", "{")
	f.Fuzz(func(t *testing.T, query, node string) {
		r := httptest.NewRequest("GET", protocol.Path, nil)
		r.Header.Set(protocol.NodeHeader, node)
		r.URL = &url.URL{Path: protocol.Path, RawQuery: query}
		h, err := protocol.ParseHello(r)
		if err != nil {
			if fault.CodeOf(err) != fault.Invalid {
				t.Fatalf("%q: %v is no fault for the one who asked", query, err)
			}
			return
		}
		if h.Key.IsZero() || h.Version < protocol.MinVersion || len(h.Subscribe) > protocol.MaxHelloSubscriptions || h.At.IsZero() {
			t.Fatalf("%q: accepted %+v", query, h)
		}
		if len(h.Name) > protocol.MaxName {
			t.Fatalf("%q: accepted a name of %d bytes", query, len(h.Name))
		}
		if h.Node != nil {
			checkInfo(t, *h.Node)
		}
	})
}
