package protocol_test

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestHelloRoundTrip(t *testing.T) {
	t.Parallel()
	n := laptop(1)
	n.Seq = 3
	r := httptest.NewRequest("GET", protocol.Path+"?v=4&key="+key(1).String()+"&name=ada%2Fdev.main", nil)
	r.Header.Set(protocol.NodeHeader, encoded(n))
	h, err := protocol.ParseHello(r)
	if err != nil || h.Name != "ada/dev.main" || h.Node == nil || h.Node.Seq != 3 || h.Node.Endpoints[0] != n.Endpoints[0] {
		t.Fatalf("got %+v, %v", h, err)
	}
	many := n
	for i := range protocol.MaxEndpoints {
		many.Endpoints = append(many.Endpoints, netip.AddrPortFrom(netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678"), uint16(i+1)))
	}
	for what, text := range map[string]string{
		"no JSON": "x", "an unknown field": `{"id":"` + n.ID.String() + `","more":1}`, "two values": encoded(n) + encoded(n),
		"no key": `{"id":"` + n.ID.String() + `"}`, "too many endpoints": encoded(many), "too long": strings.Repeat(" ", protocol.MaxHelloNode) + encoded(n),
	} {
		r.Header.Set(protocol.NodeHeader, text)
		if _, err := protocol.ParseHello(r); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: got %v, want a fault of the one who asked", what, err)
		}
	}
	r.Header.Del(protocol.NodeHeader)
	for what, name := range map[string]string{"long": strings.Repeat("x", protocol.MaxName+1), "no text": "%ff"} {
		r.URL.RawQuery = "v=4&key=" + key(1).String() + "&name=" + name
		if _, err := protocol.ParseHello(r); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("a name that is %s: got %v", what, err)
		}
	}
}
