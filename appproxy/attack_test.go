package appproxy_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// deadEnd lets everyone in to apps that never answer, and counts the connections to them.
type deadEnd struct {
	dials atomic.Int64
}

func (d *deadEnd) Decide(_ *http.Request, q appproxy.Question) (appproxy.Answer, error) {
	app := appproxy.App{Place: q.Place, Name: "Code", Running: true, Port: 8080}
	return appproxy.Answer{App: &app, SignedIn: true, Token: appToken, Route: q.Place.Workspace, By: q.Proof.Kind}, nil
}

func (d *deadEnd) Redeem(context.Context, appproxy.Exchange) (secret.Token, error) {
	return "", nil
}

func (d *deadEnd) Enter(r *http.Request, _ appproxy.Answer) (*appproxy.Visit, error) {
	return &appproxy.Visit{Context: r.Context(), Leave: func() {}}, nil
}

func (d *deadEnd) Dial(context.Context, string, uint16) (net.Conn, error) {
	d.dials.Add(1)
	near, far := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, far) // takes everything, and never answers
		far.Close()
	}()
	return near, nil
}

// TestCrowds: visitors of apps that never answer hold a bounded number of requests and connections, by app, by owner and in all. Others' apps are
// open meanwhile, and so is the app once they have left.
func TestCrowds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deadEnd{}
		own, err := url.Parse(dashboard)
		if err != nil {
			t.Fatal(err)
		}
		h := appproxy.New(appproxy.Options{Logger: slog.New(slog.DiscardHandler), Judge: d, URL: own, Dashboard: own, WildcardHost: "*.apps.example.com"})
		handler := h.Wrap(http.NotFoundHandler())
		ctx, leave := context.WithCancel(t.Context())
		var visits sync.WaitGroup
		var refused atomic.Int64
		visit := func(workspace, owner string) {
			visits.Go(func() {
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://code--main--"+workspace+"--"+owner+".apps.example.com/", nil)
				r.Header.Set("Cookie", "coder_app_token="+appToken)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if strings.Contains(w.Body.String(), "is busy") && w.Code == http.StatusServiceUnavailable {
					refused.Add(1)
				}
			})
		}
		expect := func(what string, progress int, dials, refusals int64) {
			t.Helper()
			synctest.Wait()
			if h.InProgress() != progress || d.dials.Load() != dials || refused.Load() != refusals {
				t.Errorf("%s: %d in progress, %d connections, %d refused; want %d, %d, %d", what, h.InProgress(), d.dials.Load(), refused.Load(), progress, dials, refusals)
			}
		}
		for range 2000 {
			visit("one", "eve")
		}
		expect("an app", 1024, 256, 976)
		for range 2000 {
			visit("two", "eve")
			visit("three", "eve")
		}
		expect("an owner", 2048, 256+2*256, 976+4000-1024)
		visit("dev", "ann")
		expect("another owner", 2049, 256+2*256+1, 976+4000-1024)
		leave()
		visits.Wait()
		if n := h.InProgress(); n != 0 {
			t.Errorf("%d in progress after all visitors have left", n)
		}
		ctx, leave = context.WithCancel(t.Context())
		visit("one", "eve")
		synctest.Wait()
		if h.InProgress() != 1 {
			t.Errorf("the app is closed after its visitors have left")
		}
		leave()
		visits.Wait()
		h.Close()
	})
}

// TestWebsocketsCount: a websocket is in progress until both sides have ended it, also one whose visitor only reads.
func TestWebsocketsCount(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, conn)
	}))
	defer app.Close()
	own, err := url.Parse(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{app: appproxy.App{Place: appproxy.Place{Owner: "ann", Workspace: "dev", Agent: "main", Slug: "code"}, Name: "Code", Running: true, Port: 8080}, dial: app.Listener.Addr().String()}
	h := appproxy.New(appproxy.Options{Logger: slog.New(slog.DiscardHandler), Judge: j, URL: own, Dashboard: own, WildcardHost: "*.apps.example.com"})
	defer h.Close()
	front := httptest.NewServer(h.Wrap(http.NotFoundHandler()))
	defer front.Close()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+appHost+"\r\nCookie: coder_app_token="+appToken+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	defer resp.Body.Close()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := reader.ReadByte(); b != 'x' || err != nil {
		t.Fatalf("got %q, %v", b, err)
	}
	if n := h.InProgress(); n != 1 {
		t.Errorf("%d in progress, want the websocket", n)
	}
	conn.Close()
	testwait.Until(t, "the websocket has ended", func() error { return testwait.Equal(h.InProgress(), 0) })
}
