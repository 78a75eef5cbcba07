package websock_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers upgrades with handle, and returns the URL. The server waits for its handlers at the end of the test.
func serve(t *testing.T, handle http.HandlerFunc) *url.URL {
	t.Helper()
	var handlers sync.WaitGroup // the server does not wait for those that took their connection over
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		handle(w, r)
	}))
	t.Cleanup(func() { s.Close(); handlers.Wait() })
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// each serves every connection with do, which ends before the test does.
func each(t *testing.T, opts websock.AcceptOptions, do func(*websock.Conn)) *url.URL {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websock.Accept(w, r, opts)
		if err != nil {
			t.Logf("accept: %v", err)
			return
		}
		defer conn.CloseNow()
		do(conn)
	})
}

// echo sends back what it reads, until the connection ends.
func echo(conn *websock.Conn) {
	for {
		data, err := conn.Read(context.Background())
		if err != nil || conn.Write(context.Background(), data) != nil {
			return
		}
	}
}

func dial(t *testing.T, u *url.URL, opts websock.DialOptions) *websock.Conn {
	t.Helper()
	conn, err := websock.Dial(t.Context(), u, opts)
	if err != nil {
		t.Fatalf("dial %s: %v", u, err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	return conn
}

func TestMessages(t *testing.T) {
	t.Parallel()
	conn := dial(t, each(t, websock.AcceptOptions{}, echo), websock.DialOptions{})
	type message struct{ Text string }
	want := message{strings.Repeat("ü", 1000)}
	if err := conn.WriteJSON(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	var got message
	if err := conn.ReadJSON(t.Context(), &got); err != nil || got != want {
		t.Fatalf("got %v, %v", got, err)
	}
	if time.Since(conn.LastSeen()) > time.Minute {
		t.Fatalf("last seen %s", conn.LastSeen())
	}
}

func TestCloseTellsWhy(t *testing.T) {
	t.Parallel()
	reason := strings.Repeat("ä", 100) // 200 bytes: too long for a close frame
	u := each(t, websock.AcceptOptions{}, func(conn *websock.Conn) {
		conn.Close(websock.StatusPolicy, reason)
		conn.Close(websock.StatusNormal, "again")
	})
	_, err := dial(t, u, websock.DialOptions{}).Read(t.Context())
	closed, ok := errors.AsType[*websock.CloseError](err)
	if !ok || closed.Status != websock.StatusPolicy || closed.Reason != strings.Repeat("ä", 61) {
		t.Fatalf("got %v", err)
	}
}

func TestReadLimit(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	u := each(t, websock.AcceptOptions{ReadLimit: 10}, func(conn *websock.Conn) {
		if _, err := conn.Read(context.Background()); err != nil {
			got <- err
			return
		}
		_, err := conn.Read(context.Background())
		got <- err
	})
	conn := dial(t, u, websock.DialOptions{})
	for _, text := range []string{"0123456789", "01234567890"} {
		if err := conn.Write(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := conn.Read(t.Context())
	if closed, ok := errors.AsType[*websock.CloseError](err); !ok || closed.Status != websock.StatusTooBig {
		t.Fatalf("the sender got %v", err)
	}
	if err := <-got; !errors.Is(err, websock.ErrTooBig) {
		t.Fatalf("the reader got %v", err)
	}
}

func TestBinaryIsRefused(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	u := each(t, websock.AcceptOptions{}, func(conn *websock.Conn) {
		_, err := conn.Read(context.Background())
		got <- err
	})
	stream, err := websock.Dial(t.Context(), u, websock.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.CloseNow()
	if err := stream.WriteBinary(t.Context(), []byte("bytes")); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Read(t.Context()); err == nil {
		t.Fatal("the stream ended in peace")
	}
	if err := <-got; !errors.Is(err, websock.ErrNotText) {
		t.Fatalf("got %v", err)
	}
}

// pipes is a listener and a dialer of connections in memory, on which time can be a bubble's.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.accepted <- theirs
	return ours, nil
}

// pair returns both sides of a connection in a bubble. It ends before the bubble does.
func pair(t *testing.T, accept websock.AcceptOptions, opts websock.DialOptions) (dialed, accepted *websock.Conn) {
	t.Helper()
	wire := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	conns := make(chan *websock.Conn, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websock.Accept(w, r, accept)
		if err != nil {
			t.Error(err)
		}
		conns <- conn
	})}
	go server.Serve(wire)
	t.Cleanup(func() { server.Close() })
	opts.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: wire.dial, DisableKeepAlives: true}}
	dialed = dial(t, &url.URL{Scheme: "http", Host: "pipe"}, opts)
	accepted = <-conns
	t.Cleanup(func() { accepted.CloseNow() })
	return dialed, accepted
}

// TestDeadConnection: a side that answers no pings is dead, and the reader gets ErrDead.
func TestDeadConnection(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	u := each(t, websock.AcceptOptions{PingInterval: -1}, func(*websock.Conn) { <-stop }) // reads nothing, so no pong
	t.Cleanup(func() { close(stop) })
	conn := dial(t, u, websock.DialOptions{PingInterval: 10 * time.Millisecond})
	if _, err := conn.Read(t.Context()); !errors.Is(err, websock.ErrDead) {
		t.Fatalf("got %v", err)
	}
}

// TestQuietConnection: a side that only answers pings is alive.
func TestQuietConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, other := pair(t, websock.AcceptOptions{PingInterval: -1}, websock.DialOptions{})
		go echo(other)
		aliveFor(t, conn, conn, 10*time.Minute, websock.DefaultPingInterval)
	})
}

// TestPingsAreSignsOfLife: a side that only sends pings is alive.
func TestPingsAreSignsOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, other := pair(t, websock.AcceptOptions{PingInterval: -1}, websock.DialOptions{})
		go echo(other)
		aliveFor(t, conn, other, 10*time.Minute, websock.DefaultPingInterval)
	})
}

// aliveFor reads from conn, which brings nothing, and fails unless side sees a sign of life at least every interval for d.
func aliveFor(t *testing.T, conn, side *websock.Conn, d, interval time.Duration) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { _, err := conn.Read(context.Background()); ended <- err }()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
		if silent := time.Since(side.LastSeen()); silent > interval {
			t.Fatalf("no sign of life for %v", silent)
		}
	}
	conn.Close(websock.StatusNormal, "")
	if err := <-ended; err == nil {
		t.Fatal("Close did not end the read")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	ours := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(map[string]string{"message": "sorry", "detail": "try later"})
		}
	}
	proxy := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", status) }
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		code    fault.Code
		message string
	}{
		"unauthenticated":       {ours(401), fault.Unauthenticated, "sorry"},
		"forbidden":             {ours(403), fault.Forbidden, "sorry"},
		"conflict":              {ours(409), fault.Conflict, "sorry"},
		"invalid":               {ours(400), fault.Invalid, "sorry"},
		"unavailable":           {ours(503), fault.Unavailable, "sorry"},
		"bare unauthenticated":  {proxy(401), fault.Unauthenticated, ""},
		"proxy does not like":   {proxy(400), fault.Unavailable, ""},
		"bad gateway":           {proxy(502), fault.Unavailable, ""},
		"server error of proxy": {proxy(500), fault.Unavailable, ""},
		"no websocket":          {func(http.ResponseWriter, *http.Request) {}, fault.Unavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := websock.Dial(t.Context(), serve(t, c.handler), websock.DialOptions{})
			f := fault.As(err)
			if f == nil || f.Code != c.code || (c.message != "" && (f.Message != c.message || f.Detail != "try later")) {
				t.Fatalf("got %v (%s), want %s", err, fault.CodeOf(err), c.code)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		_, err := websock.Dial(t.Context(), &url.URL{Scheme: "http", Host: testport.Addr()}, websock.DialOptions{})
		if fault.CodeOf(err) != fault.Unavailable {
			t.Fatalf("got %v", err)
		}
	})
}

// TestRetryAfter checks that a refusal says when to return, as far as that makes sense.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "60": time.Minute, "61": time.Minute, "4294967295": time.Minute,
		"99999999999999999999": 0, "-1": 0, "1.5": 0, "Fri, 31 Dec 1999 23:59:59 GMT": 0,
	} {
		t.Run(header, func(t *testing.T) {
			t.Parallel()
			_, err := websock.Dial(t.Context(), serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", header)
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, `{"message":"later","reason":"server_busy"}`)
			}), websock.DialOptions{})
			if f := fault.As(err); f == nil || f.Reason != fault.Busy || f.RetryAfter != want {
				t.Errorf("got %+v, want to return after %s", f, want)
			}
		})
	}
}

// FuzzRetryAfter checks that no answer makes a client wait longer than a minute, or a negative time.
func FuzzRetryAfter(f *testing.F) {
	for _, header := range []string{"", "7", "-7", "18446744073709551615", "4294967295", " 7"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if d := websock.RetryAfter(http.Header{"Retry-After": {header}}); d < 0 || d > time.Minute {
			t.Errorf("%q asks to wait %s", header, d)
		}
	})
}

// TestRedirectKeepsTheCredential: the credential goes only to the named server, wherever that redirects.
func TestRedirectKeepsTheCredential(t *testing.T) {
	t.Parallel()
	thief := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("got %q", r.Header.Get("Credential")) })
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.String(), http.StatusTemporaryRedirect)
	})
	_, err := websock.Dial(t.Context(), u, websock.DialOptions{Header: http.Header{"Credential": {"secret"}}})
	if f := fault.As(err); f == nil || f.Code != fault.Unavailable || !strings.Contains(f.Detail, thief.String()) {
		t.Fatalf("got %v", err)
	}
}

func TestNetConn(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ws, err := websock.Accept(w, r, websock.AcceptOptions{Subprotocol: "echo"})
		if err != nil {
			t.Logf("accept: %v", err)
			return
		}
		conn := ws.NetConn(context.WithoutCancel(r.Context()))
		defer conn.Close()
		io.Copy(conn, conn)
	})
	ws, err := websock.Dial(t.Context(), u, websock.DialOptions{Subprotocol: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	conn := ws.NetConn(t.Context())
	want := strings.Repeat("0123456789", 100_000)
	go func() {
		if _, err := io.WriteString(conn, want); err != nil {
			t.Errorf("write: %v", err)
		}
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("%d bytes came back changed (%v)", len(got), err)
	}
	conn.Close()
	if _, err := websock.Dial(t.Context(), u, websock.DialOptions{Subprotocol: "derp"}); fault.CodeOf(err) != fault.Unavailable {
		t.Fatalf("another subprotocol: %v", err)
	}
}

func TestForeignPagesAreRefused(t *testing.T) {
	t.Parallel()
	u := each(t, websock.AcceptOptions{OriginHosts: []string{"friend.example"}}, echo)
	for origin, allowed := range map[string]bool{"https://evil.example": false, "https://friend.example": true, "http://" + u.Host: true} {
		conn, err := websock.Dial(t.Context(), u, websock.DialOptions{Header: http.Header{"Origin": {origin}}})
		if allowed != (err == nil) || (!allowed && fault.CodeOf(err) != fault.Forbidden) {
			t.Errorf("%s: %v", origin, err)
		}
		if err == nil {
			conn.Close(websock.StatusNormal, "")
		}
	}
}
