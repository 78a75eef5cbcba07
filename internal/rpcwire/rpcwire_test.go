package rpcwire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/internal/rpcwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEnd: the end of an exchange fails the hanging read and every later one, and only its first cause counts.
func TestEnd(t *testing.T) {
	t.Parallel()
	if _, err := rpcwire.From(context.Background()); err == nil {
		t.Error("a context without an exchange has one")
	}
	cause := errors.New("replaced")
	wires, done := make(chan *rpcwire.Wire), make(chan error, 1)
	server := httptest.NewServer(rpcwire.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		wire, err := rpcwire.From(r.Context())
		if err != nil {
			t.Error(err)
		}
		if err := wire.AwaitRead(time.Hour); err != nil {
			t.Errorf("a new exchange: %v", err)
		}
		if err := wire.AwaitWrite(time.Hour); err != nil {
			t.Error(err)
		}
		if wire.Cause() != nil {
			t.Errorf("a new exchange was ended: %v", wire.Cause())
		}
		wires <- wire
		_, err = r.Body.Read(make([]byte, 1))
		done <- err
	})))
	defer server.Close()
	body, hold := io.Pipe()
	defer hold.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := server.Client().Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	wire := <-wires
	wire.End(cause)
	wire.End(errors.New("later"))
	if err := <-done; err == nil {
		t.Error("a read went on after the end")
	}
	if err := wire.AwaitRead(time.Hour); !errors.Is(err, cause) || !errors.Is(wire.Cause(), cause) {
		t.Errorf("the cause is %v, %v; want the first", err, wire.Cause())
	}
	hold.Close()
	<-answered
}

// pipes is a listener of connections in memory, on which time can be a bubble's.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p <- far
	return near, nil
}

// TestNoDeadline: a deadline that was taken back does not end the exchange, as one that passes does.
func TestNoDeadline(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/back": "late", "/kept": ""} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // a busy machine could let the deadline pass before it is taken back
				const soon = 50 * time.Millisecond
				over := make(chan struct{})
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(over)
					wire, err := rpcwire.From(r.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if err := errors.Join(wire.AwaitRead(soon), wire.AwaitWrite(soon)); err != nil {
						t.Error(err)
					}
					if r.URL.Path == "/back" {
						if err := errors.Join(wire.AwaitRead(0), wire.AwaitWrite(0)); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(4 * soon)
					_, _ = io.WriteString(w, "late")
				})
				server := &http.Server{Protocols: new(http.Protocols), Handler: rpcwire.Handler(handler)}
				server.Protocols.SetUnencryptedHTTP2(true)
				listener := make(pipes)
				go func() { _ = server.Serve(listener) }()
				defer server.Close()
				transport := &http.Transport{Protocols: server.Protocols, DialContext: listener.dial}
				defer transport.CloseIdleConnections()
				resp, err := (&http.Client{Transport: transport}).Get("http://pipe" + path)
				var got []byte
				if err == nil {
					got, _ = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				<-over // the client may have left before
				if string(got) != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// TestEndAfterReturn checks that an exchange can be ended after its handler has returned. HTTP/2's response writer panics from then on.
func TestEndAfterReturn(t *testing.T) {
	t.Parallel()
	var wire *rpcwire.Wire
	returned := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rpcwire.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			wire, _ = rpcwire.From(r.Context())
		})).ServeHTTP(w, r)
		close(returned)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	<-returned
	transport.CloseIdleConnections()
	server.Close() // the server has nothing of the exchange left
	if wire.AwaitRead(time.Hour) == nil || wire.AwaitWrite(time.Hour) == nil {
		t.Error("a deadline was set after the handler had returned")
	}
	cause := errors.New("stopping")
	wire.End(cause)
	if err := wire.AwaitRead(time.Hour); !errors.Is(err, cause) {
		t.Errorf("the cause is %v, want %v", err, cause)
	}
}
