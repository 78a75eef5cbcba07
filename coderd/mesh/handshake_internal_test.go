package mesh

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// halfServer is what a server needs for handshakes with others.
func halfServer(t *testing.T, key byte) *Service {
	t.Helper()
	signer, err := signed.New([]byte{31: key})
	if err != nil {
		t.Fatal(err)
	}
	return &Service{opts: Options{ID: uuid.New(), Signer: signer}, log: slog.New(slog.DiscardHandler)}
}

// TestUsesAreSeparate: a token that was made for one use of a connection between servers opens no other, so that what
// was overheard on the way to a link is worth nothing for a relay.
func TestUsesAreSeparate(t *testing.T) {
	t.Parallel()
	s := halfServer(t, 1)
	ends := linkServers{From: uuid.New(), To: s.opts.ID, Nonce: "n"}
	uses := []use{asLink, asFollower, asLender}
	for i, made := range uses {
		token, err := s.opts.Signer.Sign(made.asked, ends, linkLifetime)
		if err != nil {
			t.Fatal(err)
		}
		for j, shown := range uses {
			r := httptest.NewRequest(http.MethodGet, protocol.LinkPath, nil)
			r.Header.Set(shown.header, token.Reveal())
			w := httptest.NewRecorder()
			err := s.acceptLink(w, r)
			if refused := fault.CodeOf(err) == fault.Unauthenticated; refused != (i != j) {
				t.Errorf("a token made for %q, shown for %q: %v, %d", made.asked, shown.asked, err, w.Code)
			}
		}
	}
}

// TestHandshakeOfStrangers: a server with another key neither follows a relay nor gets a connection to one, and the end
// that it fools with an overheard token sends it nothing.
func TestHandshakeOfStrangers(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]use{"link": asLink, "follower": asFollower, "lender": asLender} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			honest, stranger := halfServer(t, 1), halfServer(t, 2)
			dial := func(from *Service, to http.Handler) error {
				web := httptest.NewServer(to)
				defer web.Close()
				u, err := url.Parse(web.URL)
				if err != nil {
					t.Fatal(err)
				}
				conn, err := from.dialReplica(t.Context(), Replica{ID: honest.opts.ID, URL: u}, use)
				if err == nil {
					conn.CloseNow()
				}
				return err
			}
			if err := dial(stranger, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := honest.acceptLink(w, r); err != nil {
					http.Error(w, err.Error(), http.StatusUnauthorized)
				}
			})); err == nil {
				t.Error("an honest server accepted a stranger")
			}
			// The stranger takes the honest server's request, and cannot answer it.
			dialer := halfServer(t, 1)
			if err := dial(dialer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, err := websock.Accept(w, r, websock.AcceptOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.CloseNow()
				ends := linkServers{From: dialer.opts.ID, To: honest.opts.ID}
				if err := stranger.prove(r.Context(), conn, use.accepted, ends, secret.Text(16)); err != nil {
					t.Error(err)
				}
				if text, err := conn.Read(r.Context()); err == nil {
					t.Errorf("the dialer answered a stranger: %s", text)
				}
			})); err == nil {
				t.Error("an honest server believed a stranger")
			}
		})
	}
}

// relayConns returns the two ends of a connection between relays.
func relayConns(t *testing.T) (one, two *relayConn) {
	t.Helper()
	ends := linkServers{From: uuid.New(), To: uuid.New(), Nonce: "dialer"}
	d, a := linkEnds(t)
	encrypt := func(conn *websock.Conn, own uuid.UUID) *relayConn {
		c, err := newCipherConn(conn, [32]byte{1}, own, ends, "acceptor")
		if err != nil {
			t.Fatal(err)
		}
		return newRelayConn(c)
	}
	return encrypt(d, ends.From), encrypt(a, ends.To)
}

// TestRelayConn checks that a connection between relays carries bytes like any other, whatever the sizes of writes and
// reads, and ends at deadlines.
func TestRelayConn(t *testing.T) {
	t.Parallel()
	one, two := relayConns(t)
	sent := []byte(secret.Text(300_000))
	conns := [2]net.Conn{one, two}
	for i, from := range conns {
		to := conns[1-i]
		written := make(chan error, 1)
		go func() {
			_, err := from.Write(sent[:1])
			if err == nil {
				_, err = from.Write(sent[1:])
			}
			written <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(to, got); err != nil || string(got) != string(sent) {
			t.Errorf("direction %d: %v", i, err)
		}
		if err := testwait.For(t, "the writer", written); err != nil {
			t.Error(err)
		}
	}
	if err := one.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read after its deadline: %v", err)
	}
	if _, err := two.Read(make([]byte, 1)); err == nil {
		t.Error("the other end goes on")
	}

	one, two = relayConns(t)
	defer two.Close()
	later, never := time.Now().Add(time.Hour), time.Time{}
	if err := errors.Join(one.SetDeadline(later), one.SetDeadline(never), one.Close()); err != nil {
		t.Error(err)
	}
	if _, err := one.Write([]byte("x")); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write to a closed connection: %v", err)
	}
}

// TestLoansNeedABorrower: a connection that another server lends is closed when this server does not know the other
// one, or has ended.
func TestLoansNeedABorrower(t *testing.T) {
	t.Parallel()
	s := halfServer(t, 1)
	lender := uuid.New()
	for name, known := range map[string]map[uuid.UUID]*replica{
		"unknown": {},
		"ended":   {lender: {lent: make(chan *cipherConn), ended: canceled().Done()}},
	} {
		s.replicas.byID = known
		one, two := relayConns(t)
		closed := make(chan error, 1)
		go func() {
			_, err := two.Read(make([]byte, 1))
			closed <- err
		}()
		s.borrowRelay(t.Context(), lender, one.conn)
		if err := testwait.For(t, "the end of the loan", closed); err == nil {
			t.Errorf("%s: the loan goes on", name)
		}
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestLoansAreOfferedInTime: a server lends its relay once another one has not followed it for a while, however often third
// servers come and go, and not before.
func TestLoansAreOfferedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, absent, restless := &Service{dialBack: dialBackAfter}, uuid.New(), uuid.New()
		s.replicas.followers = map[uuid.UUID]int{absent: 1}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				s.countFollower(restless, 1)
				s.countFollower(restless, -1)
				_ = backoff.Sleep(ctx, dialBackAfter/2, nil)
			}
		}()
		offered := make(chan error, 1)
		began := time.Now()
		patience := time.Duration(0) // of a server that has just started; it lasts until the other one follows
		go func() { offered <- s.awaitUnfollowed(ctx, absent, &patience) }()
		const follows = time.Minute
		time.Sleep(follows)
		s.countFollower(absent, -1)
		if err := <-offered; err != nil || time.Since(began) != follows+dialBackAfter {
			t.Errorf("offered after %s, %v; want %s after the other one has left", time.Since(began), err, dialBackAfter)
		}
	})
}
