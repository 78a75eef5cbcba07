package netio_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestDatagrams checks that datagrams keep their limits on a stream, also if they are empty, too long for the reader, or interrupted by a deadline.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	a, b := netio.Datagrams(near), netio.Datagrams(far)
	long := bytes.Repeat([]byte("x"), 65535)
	for _, sent := range [][]byte{[]byte("one"), {}, long} {
		written := make(chan error, 1)
		go func() {
			_, err := a.Write(sent)
			written <- err
		}()
		buf := make([]byte, 1<<16)
		n, err := b.Read(buf)
		if err != nil || !bytes.Equal(buf[:n], sent) {
			t.Fatalf("%d bytes of %d, %v", n, len(sent), err)
		}
		if err := testwait.For(t, "the datagram is sent", written); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Write(make([]byte, 65536)); err == nil {
		t.Error("a datagram that has no length is sent")
	}

	// What arrives in pieces, with deadlines between them, is one datagram.
	pieces := [][]byte{{0}, {5, 'h'}, []byte("ell"), []byte("o\x00\x01!")}
	buf := make([]byte, 3)
	for i, piece := range pieces {
		if _, err := near.Write(piece); err != nil {
			t.Fatal(err)
		}
		if i == len(pieces)-1 {
			break
		}
		if err := b.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after piece %d: %d bytes, %v", i, n, err)
		}
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hel", "!"} { // the rest of the first has no room
		if n, err := b.Read(buf); err != nil || string(buf[:n]) != want {
			t.Fatalf("%q, %v, want %q", buf[:n], err, want)
		}
	}

	// A stream that ends in a datagram is broken, one that ends after one has ended.
	if _, err := near.Write([]byte{0, 9, 'x'}); err != nil {
		t.Fatal(err)
	}
	near.Close()
	if _, err := b.Read(buf); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken datagram: %v", err)
	}
	near, far = pair(t)
	near.Close()
	if _, err := netio.Datagrams(far).Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

// FuzzDatagrams reads whatever an end sends.
func FuzzDatagrams(f *testing.F) {
	f.Add([]byte("\x00\x03abc\x00\x00"))
	f.Add([]byte("\xff\xffabc"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c := netio.Datagrams(given{r: bytes.NewReader(sent)})
		buf := make([]byte, 1<<16)
		read := 0
		for {
			n, err := c.Read(buf)
			if err != nil {
				break
			}
			read += 2 + n
		}
		if read > len(sent) {
			t.Errorf("%d bytes of %d", read, len(sent))
		}
	})
}

// given is a connection with what was sent.
type given struct {
	net.Conn
	r io.Reader
}

func (g given) Read(p []byte) (int, error) { return g.r.Read(p) }
