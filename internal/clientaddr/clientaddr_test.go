package clientaddr_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestOf checks that a client behind a trusted proxy is seen with its own address, and that a client that is not a trusted proxy cannot choose one.
func TestOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		headers           []string
		peer, name, value string
		want              string
		proxied           bool
	}{
		{nil, "203.0.113.7:1000", "X-Forwarded-For", "198.51.100.1", "203.0.113.7", false},
		{nil, "10.0.0.1:1", "X-Forwarded-For", "1.2.3.4, 198.51.100.1", "198.51.100.1", true},
		{nil, "10.0.0.1:1", "X-Forwarded-For", "1.2.3.4, 198.51.100.1, 10.1.1.1", "198.51.100.1", true},
		{nil, "10.0.0.1:1", "X-Forwarded-For", "198.51.100.1:4711", "198.51.100.1", true},
		{nil, "10.0.0.1:1", "X-Forwarded-For", "[2001:db8::1]:4711", "2001:db8::1", true},
		{nil, "10.0.0.1:1", "X-Forwarded-For", "198.51.100.1, nonsense", "10.0.0.1", true},
		{nil, "10.0.0.1:1", "X-Forwarded-For", "", "10.0.0.1", true},
		{nil, "10.0.0.1:1", "X-Real-Ip", "198.51.100.1", "10.0.0.1", true},
		{[]string{"X-Real-Ip"}, "10.0.0.1:1", "X-Real-Ip", "198.51.100.1", "198.51.100.1", true},
		{[]string{"X-Real-Ip"}, "10.0.0.1:1", "X-Forwarded-For", "198.51.100.1", "10.0.0.1", true},
		{[]string{"Cf-Connecting-Ip", "X-Forwarded-For"}, "[::ffff:10.0.0.1]:1", "X-Forwarded-For", "2001:db8::1", "2001:db8::1", true},
		{nil, "@", "X-Forwarded-For", "198.51.100.1", "invalid IP", false},
	} {
		proxies := clientaddr.Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Headers: row.headers}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = row.peer
		r.Header.Set(row.name, row.value)
		proxies.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			r.Header.Set(row.name, "6.6.6.6") // what later handlers do does not count
			if got := clientaddr.Of(r).String(); got != row.want || clientaddr.Proxied(r) != row.proxied {
				t.Errorf("%+v: got %s, proxied %t", row, got, clientaddr.Proxied(r))
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}

// TestFirstHeaderDecides checks that a client cannot choose its address with a header that its proxy does not write, when the proxy writes
// another one.
func TestFirstHeaderDecides(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{"10.2.2.2": "10.2.2.2", "198.51.100.1": "198.51.100.1", "nonsense": "10.0.0.1"} {
		proxies := clientaddr.Proxies{
			Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Headers: []string{"Cf-Connecting-Ip", "X-Forwarded-For"},
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("Cf-Connecting-Ip", written)
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		proxies.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := clientaddr.Of(r).String(); got != want {
				t.Errorf("%s: got %s, want %s", written, got, want)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}

func TestWithoutHandler(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:1"
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	if got := clientaddr.Of(r).String(); got != "10.0.0.1" || clientaddr.Proxied(r) {
		t.Errorf("got %s, proxied %t; want the peer", got, clientaddr.Proxied(r))
	}
}

func TestParseProxies(t *testing.T) {
	t.Parallel()
	got, err := clientaddr.ParseProxies([]string{"10.1.2.3/8", " 192.0.2.1", "2001:db8::/32"}, []string{"X-Real-Ip"})
	want := clientaddr.Proxies{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32")},
		Headers:  []string{"X-Real-Ip"},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := clientaddr.ParseProxies(nil, nil); err != nil || got.Networks != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	for name, given := range map[string][2][]string{
		"a header from everywhere": {nil, {"X-Forwarded-For"}},
		"a name":                   {{"proxy.example.com"}, nil},
		"too long":                 {{"10.0.0.0/40"}, nil},
		"a zone":                   {{"fe80::1%eth0"}, nil},
		"no header's name":         {{"10.0.0.0/8"}, {"X-Forwarded-For: 1"}},
	} {
		if got, err := clientaddr.ParseProxies(given[0], given[1]); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
