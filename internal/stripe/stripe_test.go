package stripe_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/internal/stripe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t testing.TB) *stripe.Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := stripe.Listen(inner, nil)
	t.Cleanup(func() { l.Close() })
	return l
}

// open makes a stream with n connections, 0 for one that stays alone.
func open(t testing.TB, n int) (client, server net.Conn) {
	t.Helper()
	l := listen(t)
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
	first, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Cleanup(func() { first.Close() })
		if err := stripe.Alone(first); err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return first, s
	}
	c := stripe.New(first)
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := c.Widen(t.Context(), n-1, dial); err != nil {
		t.Fatal(err)
	}
	if got := c.Stripes(); got != n {
		t.Fatalf("stripes: got %d, want %d", got, n)
	}
	return c, s
}

// random reads as n bytes that follow from seed.
func random(seed uint64, n int) []byte {
	r, b := rand.New(rand.NewPCG(seed, 1)), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Both directions at once, in writes of all sizes, with ends that do not end the other direction.
func TestBytesArriveInOrder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 16} {
		client, server := open(t, n)
		const size = 8 << 20
		var both sync.WaitGroup
		for _, way := range []struct {
			from, to net.Conn
			seed     uint64
		}{{client, server, 1}, {server, client, 2}} {
			want := random(way.seed, size)
			both.Go(func() {
				sizes := rand.New(rand.NewPCG(way.seed, 3))
				for rest := want; len(rest) > 0; {
					m := min(len(rest), 1+sizes.IntN(100<<10))
					if _, err := way.from.Write(rest[:m]); err != nil {
						t.Errorf("write: %v", err)
						return
					}
					rest = rest[m:]
				}
				if err := way.from.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Errorf("end: %v", err)
				}
			})
			both.Go(func() {
				got, err := io.ReadAll(way.to)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d connections: got %d bytes, %v; want the %d that were sent", n, len(got), err, size)
				}
			})
		}
		both.Wait()
	}
}

// What was written before Close arrives.
func TestCloseFlushes(t *testing.T) {
	t.Parallel()
	client, server := open(t, 4)
	want := random(5, 400<<10)
	if _, err := client.Write(want); err != nil {
		t.Fatal(err)
	}
	client.Close()
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
	if _, err := client.Write(want); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: got %v", err)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	client, server := open(t, 2)
	if err := client.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: got %v", err)
	}
	if err := client.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Errorf("read after the deadline was taken back: %v", err)
	}
}

// A connection that breaks ends the stream with an error at both ends, not with an end that looks complete.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	l := listen(t)
	first, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := stripe.New(first)
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first.Close()
	for name, conn := range map[string]net.Conn{"client": c, "server": s} {
		if _, err := io.ReadAll(conn); err == nil {
			t.Errorf("%s: got a clean end", name)
		}
	}
}

// raw begins a stream by hand.
func raw(t *testing.T, l *stripe.Listener, joins byte, name [16]byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write(append(append([]byte{1}, name[:]...), joins)); err != nil {
		t.Fatal(err)
	}
	return c
}

func chunk(offset uint64, data []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, offset)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func report(before uint64, at ...uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, before)
	b = binary.BigEndian.AppendUint32(b, 0xffffff00+uint32(len(at)))
	for _, offset := range at {
		b = binary.BigEndian.AppendUint64(b, offset)
	}
	return b
}

// A peer that breaks the rules loses its stream, and nothing else happens.
func TestHostilePeer(t *testing.T) {
	t.Parallel()
	long := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 0), stripe.MaxChunk+1)
	for what, bytes := range map[string][]byte{
		"a chunk that is too long":      long,
		"a byte twice":                  append(chunk(0, []byte("abc")), chunk(1, []byte("b"))...),
		"a chunk twice":                 append(chunk(5, []byte("abc")), chunk(5, []byte("abc"))...),
		"two ends":                      append(chunk(3, nil), chunk(3, nil)...),
		"bytes after the end":           append(chunk(0, nil), chunk(0, []byte("x"))...),
		"an end before what is there":   append(chunk(0, []byte("abc")), chunk(1, nil)...),
		"an offset beyond all streams":  chunk(1<<63, []byte("x")),
		"a report of what was not sent": report(1),
		"a report that is too long":     report(0, make([]uint64, 17)...),
		"half a report":                 report(0, 1, 2)[:20],
		"nothing at all":                nil,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			c := raw(t, l, 0, [16]byte{1})
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := c.Write(bytes); err != nil {
				t.Fatal(err)
			}
			c.(*net.TCPConn).CloseWrite()
			read := make(chan error, 1)
			go func() { _, err := io.ReadAll(s); read <- err }()
			if err := <-read; err == nil && what != "bytes after the end" && what != "two ends" {
				t.Error("the stream ended as if nothing had happened")
			}
			if _, err := s.Write([]byte("x")); err == nil {
				if _, err := io.ReadAll(c); err != nil {
					t.Logf("the stream was reset: %v", err)
				}
			}
		})
	}
}

// relay carries bytes to addr and back for each connection that it accepts. Those numbered in stuck stop after some bytes: what was
// sent to them is accepted, and arrives nowhere.
func relay(t *testing.T, addr string, stuck map[int]int64) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for i := 0; ; i++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			limit, some := stuck[i]
			all.Go(func() {
				if some {
					io.CopyN(out, in, limit)
					io.Copy(io.Discard, in)
				} else {
					io.Copy(out, in)
				}
				out.(*net.TCPConn).CloseWrite()
			})
			all.Go(func() {
				io.Copy(in, out)
				in.(*net.TCPConn).CloseWrite()
			})
		}
	})
	return l
}

// What a connection swallows is sent again by another, the stream's end too.
func TestStuckConnection(t *testing.T) {
	t.Parallel()
	l := listen(t)
	// The preamble passes, and something behind it: part of a chunk of the second one, several chunks of the third.
	r := relay(t, l.Addr().String(), map[int]int64{1: 1000, 2: 200_000})
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", r.Addr().String())
	}
	first, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := stripe.New(first)
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Widen(t.Context(), 3, dial); err != nil {
		t.Fatal(err)
	}
	want := random(7, 20<<20)
	go func() {
		c.Write(want)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v; want the %d that were sent", len(got), err, len(want))
	}
	s.Close()
	c.Close()
}

// A reader that rests for longer than the stream has room gets the rest when it goes on.
func TestReaderThatRests(t *testing.T) {
	t.Parallel()
	client, server := open(t, 3)
	want := random(8, 3*stripe.Window)
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(want)
		sent <- errors.Join(err, client.(*stripe.Conn).CloseWrite())
	}()
	for from := 0; from < len(want); {
		select {
		case err := <-sent: // everything that is left has room
			if err != nil {
				t.Fatal(err)
			}
			sent = nil
		case <-time.After(200 * time.Millisecond):
		}
		got := make([]byte, min(stripe.Window, len(want)-from))
		if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want[from:from+len(got)]) {
			t.Fatalf("after %d bytes: %v", from, err)
		}
		from += len(got)
	}
	if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

// TestRefusedJoin: a connection that the other end refuses neither breaks the stream nor makes it wait, whenever that happens.
func TestRefusedJoin(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(net.Conn){
		"at once":            func(c net.Conn) { c.Close() },
		"after the preamble": func(c net.Conn) { io.ReadFull(c, make([]byte, 18)); c.Close() },
		"with a reset": func(c net.Conn) {
			io.ReadFull(c, make([]byte, 18))
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			no, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer no.Close()
			go func() {
				for {
					c, err := no.Accept()
					if err != nil {
						return
					}
					refuse(c)
				}
			}()
			first, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			client := stripe.New(first)
			defer client.Close()
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			const size = 64 << 20
			got := make(chan error, 2)
			read := func(c net.Conn) {
				n, err := io.Copy(io.Discard, c)
				if err == nil && n != size {
					err = fmt.Errorf("%d bytes came, want %d", n, size)
				}
				got <- err
			}
			write := func(c net.Conn) {
				for range size >> 20 {
					if _, err := c.Write(make([]byte, 1<<20)); err != nil {
						t.Error(err)
						return
					}
				}
				c.(interface{ CloseWrite() error }).CloseWrite()
			}
			go read(server)
			go read(client)
			go write(server)
			err = client.Widen(t.Context(), 3, func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", no.Addr().String())
			})
			if err != nil || client.Stripes() != 1 {
				t.Errorf("widen: %v, %d connections carry the stream, want 1", err, client.Stripes())
			}
			write(client)
			for range 2 {
				select {
				case err := <-got:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Fatal("the stream stands still")
				}
			}
		})
	}
}

// TestJoinLostAtTheListener: a connection that the listener took in, and whose client is gone before it heard of that, takes
// nothing with it.
func TestJoinLostAtTheListener(t *testing.T) {
	t.Parallel()
	l := listen(t)
	name := [16]byte{3}
	first := raw(t, l, 0, name)
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	second := raw(t, l, 1, name)
	if _, err := io.ReadFull(second, make([]byte, 12)); err != nil { // the confirmation
		t.Fatal(err)
	}
	data := random(1, 4<<20)
	go func() {
		s.Write(data)
		s.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if _, err := io.ReadFull(second, make([]byte, 1)); err != nil { // it carries something
		t.Fatal(err)
	}
	second.Close()
	got, missing := make([]byte, len(data)), len(data)
	for here := map[uint64]bool{}; missing > 0; {
		var header [12]byte
		if _, err := io.ReadFull(first, header[:]); err != nil {
			t.Fatalf("%d bytes are missing: %v", missing, err)
		}
		offset, n := binary.BigEndian.Uint64(header[:]), binary.BigEndian.Uint32(header[8:])
		if n > stripe.MaxChunk {
			io.CopyN(io.Discard, first, int64(n&0xff)*8)
			continue
		}
		if n == 0 {
			continue
		}
		if _, err := io.ReadFull(first, got[offset:offset+uint64(n)]); err != nil {
			t.Fatal(err)
		}
		if !here[offset] {
			here[offset] = true
			missing -= int(n)
		}
		if _, err := first.Write(report(0, offset)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes came than were written")
	}
}

// TestRepeatedChunks: a peer that repeats what is here and reads no reports does not fill the memory.
func TestRepeatedChunks(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe() // nothing that is not read is taken from its writer
	c := stripe.New(near)
	defer c.Close()
	go c.Widen(t.Context(), 1, func(context.Context) (net.Conn, error) {
		one, other := net.Pipe()
		t.Cleanup(func() { other.Close() })
		go io.ReadFull(other, make([]byte, 18))
		return one, nil
	})
	io.ReadFull(far, make([]byte, 18))
	far.SetDeadline(time.Now().Add(time.Minute))
	for range 1 << 20 {
		if _, err := far.Write(chunk(0, []byte("a"))); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return // cut
		}
	}
	t.Error("a million repeated chunks were taken in")
}

// A stranger's connection joins nothing: the name is known to the two ends only.
func TestJoinNeedsTheName(t *testing.T) {
	t.Parallel()
	l := listen(t)
	first := raw(t, l, 0, [16]byte{1})
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stranger := raw(t, l, 1, [16]byte{2})
	if _, err := stranger.Write(chunk(0, []byte("evil"))); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Write(chunk(0, []byte("good"))); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(s, got); err != nil || string(got) != "good" {
		t.Errorf("got %q, %v", got, err)
	}
	again := raw(t, l, 0, [16]byte{1})
	if n, err := again.Read(got); err == nil || n > 0 {
		t.Errorf("a second first connection: got %q", got[:n])
	}
}

func FuzzReceive(f *testing.F) {
	f.Add(append(chunk(0, []byte("abc")), chunk(3, nil)...))
	f.Add(chunk(7, []byte("late")))
	f.Add(append(chunk(2, []byte("c")), chunk(0, []byte("ab"))...))
	f.Add(chunk(3<<56, []byte("abc"))) // nothing before it can come any more
	f.Add(append(report(0, 1, 2, 3), chunk(0, []byte("abc"))...))
	f.Add(append(chunk(0, []byte("abc")), chunk(0, []byte("abc"))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		near, far := net.Pipe()
		c := stripe.New(near)
		defer c.Close()
		go io.Copy(io.Discard, far)
		go func() {
			far.Write(data)
			far.Close()
		}()
		got, err := io.ReadAll(c)
		if len(got) > len(data) {
			t.Errorf("%d bytes came of %d (%v)", len(got), len(data), err)
		}
	})
}

func BenchmarkStripe(b *testing.B) {
	for _, n := range []int{1, 8} {
		b.Run(map[int]string{1: "one", 8: "eight"}[n], func(b *testing.B) {
			client, server := open(b, n)
			const size = 128 << 10
			go io.Copy(io.Discard, server)
			buf := make([]byte, size)
			b.SetBytes(size)
			for b.Loop() {
				if _, err := client.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	client, server := open(b, 1)
	go io.Copy(server, server)
	buf := make([]byte, 1)
	for b.Loop() {
		if _, err := client.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
}
