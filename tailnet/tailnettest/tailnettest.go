// Package tailnettest creates meshes inside a test's process: real nodes and a real relay, on loopback sockets. It
// closes everything when the test ends.
package tailnettest

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// patience is how long any operation here may take before the test fails.
const patience = testwait.Patience

// Relay is a relay on a loopback HTTP server.
type Relay struct {
	*relay.Server
	URL *url.URL
	// Map lists the relay as region 1, code "test", with STUN.
	Map tailnet.RelayMap
}

// NewRelay starts a relay, with a STUN responder.
func NewRelay(t testing.TB) *Relay {
	t.Helper()
	return newRelay(t, httptest.NewServer)
}

// NewTLSRelay is like NewRelay, over https. The pool holds the authority of its certificate, for Options.TLS.
func NewTLSRelay(t testing.TB) (*Relay, *x509.CertPool) {
	t.Helper()
	pool := x509.NewCertPool()
	r := newRelay(t, func(h http.Handler) *httptest.Server {
		web := httptest.NewUnstartedServer(h)
		web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		web.StartTLS()
		pool.AddCert(web.Certificate())
		return web
	})
	return r, pool
}

func newRelay(t testing.TB, serve func(http.Handler) *httptest.Server) *Relay {
	t.Helper()
	s, err := relay.New(relay.Options{Logger: Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	stun, err := s.ListenSTUN("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", s.Handler())
	mux.Handle("/derp/", s.Handler())
	web := serve(mux)
	t.Cleanup(func() {
		s.Close() // first: the web server's Close waits for requests, and every connected node holds one
		web.Close()
	})
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Relay{s, u, tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "test", Name: "Test", STUNPort: stun}}}}
}

// NewNode starts a node that knows the relay and is admitted by it. opts.ID is optional. If r is nil, the node has no
// relay.
func NewNode(t testing.TB, r *Relay, opts tailnet.Options) *tailnet.Node {
	t.Helper()
	if opts.ID == uuid.Nil {
		opts.ID = uuid.New()
	}
	if opts.Logger == nil {
		opts.Logger = Logger(t)
	}
	n, err := tailnet.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if r == nil {
		return n
	}
	r.Admit(n.PublicKey())
	if err := n.SetRelayMap(r.Map, r.URL); err != nil {
		t.Fatal(err)
	}
	return n
}

// Introduce makes two nodes peers of each other, and forwards changes of each to the other until the test ends.
// inboundAtA is what b may open on a, and inboundAtB is what a may open on b.
func Introduce(t testing.TB, a, b *tailnet.Node, inboundAtA, inboundAtB tailnet.Inbound) {
	t.Helper()
	introduce := func(who, about *tailnet.Node, inbound tailnet.Inbound) error {
		return who.Upsert(tailnet.Peer{NodeInfo: about.Info(), Inbound: inbound})
	}
	if err := introduce(a, b, inboundAtA); err != nil {
		t.Fatal(err)
	}
	if err := introduce(b, a, inboundAtB); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	// Poll, because a node has a single Changed channel but may have been introduced to several others.
	go func() {
		defer close(done)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		var seqA, seqB uint64
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if seq := a.Info().Seq; seq != seqA {
				seqA = seq
				if err := introduce(b, a, inboundAtB); err != nil {
					return // closed
				}
			}
			if seq := b.Info().Seq; seq != seqB {
				seqB = seq
				if err := introduce(a, b, inboundAtA); err != nil {
					return
				}
			}
		}
	}()
}

// WaitPath blocks until pings from a to b take the wanted path.
func WaitPath(t testing.TB, a, b *tailnet.Node, want tailnet.Path) tailnet.Pong {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		pong, err := a.Ping(ctx, b.ID())
		if err != nil {
			t.Fatalf("waiting for a %s path: %v", want, err)
		}
		if pong.Direct == (want == tailnet.PathDirect) {
			return pong
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Echo echoes every connection to a port of n.
func Echo(t testing.TB, n *tailnet.Node, port uint16) {
	t.Helper()
	l, err := n.Listen(port)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		n.Close()
		<-done
	})
	go func() {
		defer close(done)
		serveEcho(l)
	}()
}

// Logger returns a logger that writes to the test's log, without the engine's own chatter.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func serveEcho(l net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer c.Close()
			_, _ = io.Copy(c, c) // until either end closes
		})
	}
}
