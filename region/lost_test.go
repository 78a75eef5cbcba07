//go:build linux

package region_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/region"
)

// deaths is a load balancer in front of a server that seems to be several, of which some have just died.
type deaths struct {
	to *httputil.ReverseProxy

	mu   sync.Mutex
	next map[string][]death // of requests to a path
	seen map[string]int
}

// death is when a server dies: before it gets a request, or before it answers.
type death int

const (
	before death = iota
	after
)

func newDeaths(t *testing.T, target *url.URL) (d *deaths, way *way) {
	t.Helper()
	d = &deaths{to: httputil.NewSingleHostReverseProxy(target), next: map[string][]death{}, seen: map[string]int{}}
	front := httptest.NewServer(d)
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	at, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	return d, newWay(t, at.Host)
}

func (d *deaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.seen[r.URL.Path]++
	dies := d.next[r.URL.Path]
	if len(dies) > 0 {
		d.next[r.URL.Path] = dies[1:]
	}
	d.mu.Unlock()
	switch {
	case len(dies) == 0:
		d.to.ServeHTTP(w, r)
	case dies[0] == before:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, "<html>502 Bad Gateway</html>") // an error means that the client has disconnected
	default:
		d.to.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
}

// meet has the next requests to a path meet dying servers, and counts from now on.
func (d *deaths) meet(path string, dies ...death) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next[path], d.seen[path] = dies, 0
}

func (d *deaths) count(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[path]
}

// TestServersDieDuringQuestions opens apps at a region while servers behind a load balancer die, before they get a
// question of the region and before they answer it. The visitor does not notice. A terminal's token works once, so the
// region does not send it again.
func TestServersDieDuringQuestions(t *testing.T) {
	t.Parallel()
	w := &world{Server: coderdtest.Start(t), t: t}
	var front *deaths
	front, w.way = newDeaths(t, w.URL)
	w.build(wildcard)
	ann := w.browser("ann")
	opens := func(address string, want int) {
		t.Helper()
		front.meet(region.VisitPath, before, after)
		front.meet(region.RedeemPath, before, after)
		if status, body := ann.open(address); status != http.StatusOK || body != "app /x " {
			t.Fatalf("%s: %d %s (%v)", address, status, body, ann.via)
		}
		// The code whose token was lost is of no use, and the browser has fetched another one.
		if got := front.count(region.RedeemPath); got != want {
			t.Errorf("%s: codes were sent %d times, want %d", address, got, want)
		}
	}
	opens(host("code")+"/x", 4)
	opens(w.proxy.String()+"/@ann/dev/apps/code/x", 4)

	token, status := w.terminalToken("ann", w.page(), terminalURL(w.proxy, w.agent), w.agent)
	if status != http.StatusOK {
		t.Fatalf("a token: %d", status)
	}
	front.meet(region.VisitPath, before)
	_, err := w.openTerminal(w.proxy, w.agent, token, w.page(), uuid.New())
	if fault.CodeOf(err) != fault.Unavailable || front.count(region.VisitPath) != 1 {
		t.Errorf("a terminal: asked %d times, %v", front.count(region.VisitPath), err)
	}
	w.terminal(uuid.New()) // as the page does, with another token
}
