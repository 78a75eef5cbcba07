package engine

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// front puts a proxy in front of a relay. It counts requests and refuses them while it is shut.
func front(t *testing.T, r Relay) (_ Relay, requests *atomic.Int32, shut *atomic.Bool) {
	t.Helper()
	requests, shut = new(atomic.Int32), new(atomic.Bool)
	target := r.URL
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, ErrorLog: log.New(io.Discard, "", 0)}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests.Add(1)
		if shut.Load() {
			http.Error(w, "not now", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(web.Close)
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.URL = u
	return r, requests, shut
}

func connected(e *Engine) func() error {
	return func() error {
		state := e.RelayStates()[1]
		return testwait.Unless(state.Connected, "%+v", state)
	}
}

// more checks that a number is greater than n.
func more(number *atomic.Int32, n int32) func() error {
	return func() error {
		got := number.Load()
		return testwait.Unless(got > n, "got %d, want more than %d", got, n)
	}
}

// TestRenewAmidLosses checks that the first attempt to succeed replaces a connection: a swallowed attempt does not delay
// the others.
func TestRenewAmidLosses(t *testing.T) {
	t.Parallel()
	target := newRelay(t)
	var requests atomic.Int32
	released := make(chan struct{})
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target.URL) }, ErrorLog: log.New(io.Discard, "", 0)}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n := requests.Add(1); n == 2 || n == 3 {
			select { // no answer
			case <-released:
			case <-req.Context().Done():
			}
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(released) })
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	relay := target
	relay.URL = u
	e.SetRelays([]Relay{relay}, 1)
	testwait.Until(t, "the relay is connected", connected(e))
	e.RenewRelays()
	testwait.Until(t, "another attempt is made while two wait for their answers", more(&requests, 3))
	testwait.Until(t, "the relay is connected", connected(e))
	if e.RelayStates()[1].Websocket {
		t.Error("the link uses a websocket although the native upgrade gets through")
	}
}

// TestUnreachableIsNotRefused checks that a websocket is tried only if something answers at the relay's address or swallows
// the upgrade.
func TestUnreachableIsNotRefused(t *testing.T) {
	t.Parallel()
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	relay, _, shut := front(t, newRelay(t))
	shut.Store(true)
	for name, c := range map[string]struct {
		url  string
		want bool
	}{"answered": {relay.URL.String(), true}, "not there": {"http://" + testport.Addr(), false}} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = dialNative(timeout(t), u, &relayLink{engine: e})
		if refused := (*upgradeError)(nil); err == nil || errors.As(err, &refused) != c.want {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestExpectedRelay checks that the link to the expected relay is the one that later carries packets. It does not count connections: on a
// busy machine, a link makes another one when the first answers late.
func TestExpectedRelay(t *testing.T) {
	t.Parallel()
	relay, requests, _ := front(t, newRelay(t))
	only := func(o *Options) { o.RelayOnly = true }
	a, b := newEngine(t, only), newEngine(t, only)
	links := make(map[*Engine]*relayLink)
	for _, e := range []*Engine{a, b} {
		e.ExpectRelay(1, relay.URL)
		testwait.Until(t, "the relay is connected before it is named", connected(e))
		links[e] = e.link(1)
		relay.STUNPort = 1
		e.SetRelays([]Relay{relay}, 1)
		e.ExpectRelay(2, relay.URL) // too late to have an effect
	}
	a.Upsert(about(b))
	b.Upsert(about(a))
	exchange(t, a, b, 100_000)
	for e, link := range links {
		if now := e.link(1); now != link {
			t.Errorf("the relay's link %p was replaced by %p", link, now)
		}
		if e.link(2) != nil {
			t.Error("there is a link to a relay that was not named")
		}
	}
	if got := requests.Load(); got < 2 {
		t.Errorf("the relay got %d requests", got)
	}
}

// TestExpectedRelayRefuses checks that a relay that refuses the node because it is not admitted yet is retried once
// SetRelays names it.
func TestExpectedRelayRefuses(t *testing.T) {
	t.Parallel()
	relay, requests, shut := front(t, newRelay(t))
	shut.Store(true)
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	e.ExpectRelay(1, relay.URL)
	testwait.Until(t, "the relay has refused", more(requests, 0))
	shut.Store(false)
	e.SetRelays([]Relay{relay}, 1)
	testwait.Until(t, "the relay is connected", connected(e))
}

// TestExpectedRelayIsAnother checks that a wrong expectation leaves nothing behind.
func TestExpectedRelayIsAnother(t *testing.T) {
	t.Parallel()
	wrong, _, _ := front(t, newRelay(t))
	right, _, _ := front(t, newRelay(t))
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	e.ExpectRelay(1, wrong.URL)
	testwait.Until(t, "the wrong relay is connected", connected(e))
	old := e.link(1)
	e.SetRelays([]Relay{right}, 1)
	select {
	case <-old.done:
	default:
		t.Error("the wrong relay is still connected")
	}
	testwait.Until(t, "the right relay is connected", connected(e))
	if got := e.link(1).relay.URL; *got != *right.URL {
		t.Errorf("the relay is %s", got)
	}
}

// TestRelaysAfterClose checks that a welcome which arrives while the engine closes connects to no relay: nothing would end that connection.
func TestRelaysAfterClose(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	e.closeRelays()
	e.SetRelays([]Relay{relay}, 1)
	e.ExpectRelay(1, relay.URL)
	for _, l := range e.allLinks() {
		t.Errorf("a link to %s was made", l.relay.URL)
	}
}
