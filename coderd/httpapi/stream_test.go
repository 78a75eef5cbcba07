package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

var streams = map[string]func(http.ResponseWriter, *http.Request, httpapi.StreamOptions, httpapi.Follow) error{
	"server-sent events": httpapi.ServeEvents,
	"websocket":          httpapi.ServeWebsocket,
}

// pipes is a listener without a network, for tests with synthetic time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestStalledReader checks that a reader that accepts nothing blocks neither its stream nor a service that is stopping.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	for name, serve := range streams {
		for what, c := range map[string]struct {
			stop  bool
			bound time.Duration
		}{
			"while the service runs": {false, 30 * time.Second},
			"when it stops":          {true, 2 * time.Second},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					life, stop := context.WithCancel(t.Context())
					defer stop()
					opts := httpapi.StreamOptions{Life: life, Logger: slog.New(slog.DiscardHandler), Failed: "failed"}
					ended := make(chan error, 1)
					server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_ = serve(w, r, opts, func(_ context.Context, send func(...httpapi.Event) error) error {
							for {
								if err := send(httpapi.Event{Data: strings.Repeat("x", 1<<16)}); err != nil {
									ended <- err
									return err
								}
							}
						})
					})}
					listener := make(pipes)
					go func() { _ = server.Serve(listener) }()
					defer server.Close()
					near, far := net.Pipe()
					defer near.Close()
					listener <- far
					if _, err := io.WriteString(near, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
						"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"); err != nil {
						t.Fatal(err)
					}
					for lines := bufio.NewReaderSize(near, 16); ; {
						line, err := lines.ReadString('\n')
						if err != nil {
							t.Fatal(err)
						}
						if line == "\r\n" {
							break
						}
					}
					synctest.Wait() // it is blocked in a message now
					began := time.Now()
					if c.stop {
						stop()
					}
					if err := <-ended; err == nil {
						t.Error("a message that was not taken counts as sent")
					}
					if took := time.Since(began); took > c.bound {
						t.Errorf("the stream went on for %s, want at most %s", took, c.bound)
					}
				})
			})
		}
	}
}

// TestStreamEnds checks that a websocket's reader learns why the stream ends, and that a reader of server-sent events sees
// the end.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end    func(stop func()) error // how the Follow ends
		status websock.Status
		reason string
	}{
		"nothing more":     {func(func()) error { return nil }, websock.StatusNormal, ""},
		"with a reason":    {func(func()) error { return httpapi.EndStream("built anew") }, websock.StatusNormal, "built anew"},
		"a failure":        {func(func()) error { return errors.New("secret") }, websock.StatusTryAgain, "cannot be read now"},
		"a fault":          {func(func()) error { return fault.New(fault.NotFound, "It is gone.") }, websock.StatusTryAgain, "It is gone."},
		"the service ends": {func(stop func()) error { stop(); return context.Canceled }, websock.StatusGoingAway, "the server is stopping"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			life, stop := context.WithCancel(t.Context())
			defer stop()
			opts := httpapi.StreamOptions{Life: life, Logger: slog.New(slog.DiscardHandler), Failed: "cannot be read now"}
			follow := func(_ context.Context, send func(...httpapi.Event) error) error {
				if err := send(httpapi.Event{Type: "data", Data: 1}, httpapi.Event{}, httpapi.Event{Type: "ping"}, httpapi.Event{Data: []int{2}}); err != nil {
					return err
				}
				return c.end(stop)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				serve := httpapi.ServeEvents
				if r.Header.Get("Upgrade") != "" {
					serve = httpapi.ServeWebsocket
				}
				if err := serve(w, r, opts, follow); err != nil {
					t.Errorf("the handler returns %v after its answer began", err)
				}
			}))
			defer server.Close()
			u, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			ws, err := websock.Dial(t.Context(), u, websock.DialOptions{HTTPClient: server.Client()})
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			for _, want := range []string{`{"type":"data","data":1}`, `{"type":"ping"}`, `[2]`} {
				if got, err := ws.Read(t.Context()); err != nil || string(got) != want {
					t.Errorf("got %s, %v; want %s", got, err, want)
				}
			}
			_, err = ws.Read(t.Context())
			if closed, ok := errors.AsType[*websock.CloseError](err); !ok || closed.Status != c.status || closed.Reason != c.reason {
				t.Errorf("the end: %v, want %d %q", err, c.status, c.reason)
			}
			if c.status == websock.StatusGoingAway {
				return // the service has stopped, so a second stream cannot be tested
			}
			resp, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if want := "event: data\ndata: 1\n\n: ping\n\nevent: ping\n\ndata: [2]\n\n"; err != nil || string(got) != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}
