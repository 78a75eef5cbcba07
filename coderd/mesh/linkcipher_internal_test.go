package mesh

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// linkEnds returns the two ends of a connection, before encryption.
func linkEnds(t *testing.T) (dialer, acceptor *websock.Conn) {
	t.Helper()
	accepted, release := make(chan *websock.Conn, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: protocol.MaxLinkMessage + linkOverhead})
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	dialer, err = websock.Dial(t.Context(), u, websock.DialOptions{ReadLimit: protocol.MaxLinkMessage + linkOverhead})
	if err != nil {
		t.Fatal(err)
	}
	acceptor = <-accepted
	t.Cleanup(func() {
		dialer.CloseNow()
		acceptor.CloseNow()
	})
	return dialer, acceptor
}

// TestLinkIsEncrypted checks that what servers tell each other arrives, that the wire does not show it, and that an end that has another
// key, or that repeats, reflects or alters a message, is not heard.
func TestLinkIsEncrypted(t *testing.T) {
	t.Parallel()
	servers := linkServers{From: uuid.New(), To: uuid.New(), Nonce: "dialer"}
	encrypt := func(conn *websock.Conn, key byte, own uuid.UUID, accepted string) *cipherConn {
		c, err := newCipherConn(conn, [32]byte{key}, own, servers, accepted)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ends := func(key byte, accepted string) (raw *websock.Conn, dialer, acceptor *cipherConn) {
		d, a := linkEnds(t)
		return d, encrypt(d, 1, servers.From, "acceptor"), encrypt(a, key, servers.To, accepted)
	}
	send := func(write func(context.Context, []byte) error, data []byte) {
		t.Helper()
		if err := write(t.Context(), data); err != nil {
			t.Fatal(err)
		}
	}
	message := []byte(`{"present":{"name":"olga"}}`)

	_, dialer, acceptor := ends(1, "acceptor")
	for range 3 {
		send(dialer.Write, message)
		if got, err := acceptor.Read(t.Context()); err != nil || !bytes.Equal(got, message) {
			t.Errorf("the acceptor got %q, %v", got, err)
		}
		send(acceptor.Write, message)
		if got, err := dialer.Read(t.Context()); err != nil || !bytes.Equal(got, message) {
			t.Errorf("the dialer got %q, %v", got, err)
		}
	}

	refuses := func(what string, c *cipherConn) {
		t.Helper()
		if got, err := c.Read(t.Context()); !errors.Is(err, errTampered) {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
	}
	_, dialer, acceptor = ends(2, "acceptor")
	send(dialer.Write, message)
	refuses("another key", acceptor)
	_, dialer, acceptor = ends(1, "earlier")
	send(dialer.Write, message)
	refuses("another nonce", acceptor)

	raw, dialer, acceptor := ends(1, "acceptor")
	send(dialer.Write, message)
	wire, err := acceptor.ReadAny(t.Context())
	if err != nil || bytes.Contains(wire, []byte("olga")) || len(wire) != len(message)+linkOverhead {
		t.Fatalf("the wire shows %q, %v", wire, err)
	}
	send(raw.WriteBinary, wire)
	if got, err := acceptor.Read(t.Context()); err != nil || !bytes.Equal(got, message) {
		t.Errorf("the first message: got %q, %v", got, err)
	}
	send(raw.WriteBinary, wire)
	refuses("a repeated message", acceptor)

	raw, dialer, acceptor = ends(1, "acceptor")
	send(acceptor.Write, message)
	if wire, err = dialer.ReadAny(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(raw.WriteBinary, wire)
	refuses("a reflected message", acceptor)

	raw, _, acceptor = ends(1, "acceptor")
	send(raw.WriteBinary, message)
	refuses("a message in the clear", acceptor)
}

// FuzzLinkMessages checks that nothing that a stranger sends is taken for a message.
func FuzzLinkMessages(f *testing.F) {
	f.Add([]byte(`{"hello":{"version":1}}`))
	f.Add([]byte{})
	f.Add(make([]byte, linkOverhead))
	f.Fuzz(func(t *testing.T, data []byte) {
		ends := linkServers{From: uuid.New(), To: uuid.New(), Nonce: "dialer"}
		c, err := newCipherConn(nil, [32]byte{1}, ends.To, ends, "acceptor")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.in.open(data); err == nil {
			t.Fatalf("%q was taken for %q", data, got)
		}
	})
}
