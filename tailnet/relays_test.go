package tailnet_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// websocketOnly is a reverse proxy that supports only websocket upgrades: it forwards others as plain requests.
func websocketOnly(t *testing.T, target *url.URL) http.Handler {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			r.Header.Del("Upgrade")
			r.Header.Del("Connection")
		}
		proxy.ServeHTTP(w, r)
	})
}

func serve(t *testing.T, h http.Handler) *url.URL {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// overRelay checks that a and b, which have no direct path, reach each other.
func overRelay(t *testing.T, a, b *tailnet.Node) {
	t.Helper()
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	defer func() {
		if t.Failed() {
			t.Logf("one end: %+v\nother end: %+v", a.Status(), b.Status())
		}
	}()
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1<<18)
}

func awaitLink(t *testing.T, n *tailnet.Node, want func(tailnet.RelayLink) bool) {
	t.Helper()
	testwait.Until(t, "the link to the relay", func() error {
		link := n.Status().Relays[0]
		return testwait.Unless(want(link), "it is %+v", link)
	})
}

func viaWebsocket(link tailnet.RelayLink) bool { return link.Connected && link.Websocket }
func native(link tailnet.RelayLink) bool       { return link.Connected && !link.Websocket }

func TestRelayBehindProxy(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a := tailnettest.NewNode(t, nil, tailnet.Options{RelayOnly: true})
	b := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: true})
	r.Admit(a.PublicKey())
	u := serve(t, websocketOnly(t, r.URL))
	t.Cleanup(func() { a.Close() })
	if err := a.SetRelayMap(r.Map, u); err != nil {
		t.Fatal(err)
	}
	awaitLink(t, a, viaWebsocket)
	awaitLink(t, b, native)
	overRelay(t, a, b)

	// A new map without the relay ends its connection; setting the same map again keeps existing connections.
	if err := a.SetRelayMap(r.Map, u); err != nil {
		t.Fatal(err)
	}
	awaitLink(t, a, viaWebsocket)
	if err := a.SetRelayMap(tailnet.RelayMap{}, u); err != nil {
		t.Fatal(err)
	}
	if err := r.WaitConnected(timeout(t), a.PublicKey(), false); err != nil {
		t.Errorf("the node stays connected to a relay that was removed from the map: %v", err)
	}
	if info := a.Info(); info.Region != 0 {
		t.Errorf("home region without relays: got %d, want 0", info.Region)
	}
}

// TestRelayBelowPath checks that an access URL may have a path.
func TestRelayBelowPath(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	mux := http.NewServeMux()
	mux.Handle("/mesh/", http.StripPrefix("/mesh", r.Handler()))
	u := serve(t, mux).JoinPath("mesh")
	a, b := tailnettest.NewNode(t, nil, tailnet.Options{RelayOnly: true}), tailnettest.NewNode(t, r, tailnet.Options{})
	r.Admit(a.PublicKey())
	t.Cleanup(func() { a.Close() })
	if err := a.SetRelayMap(r.Map, u); err != nil {
		t.Fatal(err)
	}
	awaitLink(t, a, native)
	overRelay(t, a, b)
}

// TestSchemes checks that one process reaches relays over http and https, including behind proxies that pass only
// websockets, and accepts certificates of a private authority only when configured to.
func TestSchemes(t *testing.T) {
	t.Parallel()
	plain := tailnettest.NewRelay(t)
	awaitLink(t, tailnettest.NewNode(t, plain, tailnet.Options{}), native)
	r, roots := tailnettest.NewTLSRelay(t)
	opts := tailnet.Options{RelayOnly: true, TLS: &tls.Config{RootCAs: roots}}
	a, b := tailnettest.NewNode(t, r, opts), tailnettest.NewNode(t, r, opts)
	awaitLink(t, a, native)
	overRelay(t, a, b)

	doubting := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: true})
	awaitLink(t, doubting, func(link tailnet.RelayLink) bool { return strings.Contains(link.Err, "certificate") })

	web := httptest.NewTLSServer(websocketOnly(t, r.URL))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	roots.AddCert(web.Certificate())
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxied := tailnettest.NewNode(t, nil, opts)
	r.Admit(proxied.PublicKey())
	if err := proxied.SetRelayMap(r.Map, u); err != nil {
		t.Fatal(err)
	}
	awaitLink(t, proxied, viaWebsocket)
	tailnettest.Introduce(t, proxied, b, tailnet.InboundNone, tailnet.InboundAll)
	c, err := proxied.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	exchange(t, c, 1<<18)
	c.Close()
	proxied.Close()
}

// TestFurtherSTUN: a node measures with the map's further STUN servers, finds its address there, and keeps its relay.
func TestFurtherSTUN(t *testing.T) {
	t.Parallel()
	r, other := tailnettest.NewRelay(t), tailnettest.NewRelay(t)
	port := other.Map.Regions[0].STUNPort
	r.Map.Regions[0].STUNPort = 0
	r.Map.STUN = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	testwait.Until(t, "the further server's answer", func() error {
		return testwait.Unless(a.Info().Measured, "%+v", a.Info())
	})
	overRelay(t, a, b)
	if info := a.Info(); info.Region != tailnet.ServerRegion {
		t.Errorf("the home is region %d", info.Region)
	}
	for _, m := range []tailnet.RelayMap{
		{Regions: r.Map.Regions, STUN: []string{"stun.example.com"}}, {Regions: r.Map.Regions, STUN: []string{"a:1", "b:2", "c:3", "d:4", "e:5"}},
	} {
		if err := a.SetRelayMap(m, r.URL); err == nil {
			t.Errorf("%v was accepted", m.STUN)
		}
	}
}
