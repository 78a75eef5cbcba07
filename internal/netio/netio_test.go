package netio_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns both ends of a TCP connection over loopback.
func pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// piped returns the outer ends of two connections whose inner ends are joined, and a channel that is closed when Pipe has returned.
func piped(t *testing.T, wrap func(net.Conn) io.ReadWriteCloser) (left, right *net.TCPConn, done chan [2]int64) {
	t.Helper()
	left, a := pair(t)
	right, b := pair(t)
	done = make(chan [2]int64, 1)
	go func() {
		toA, toB := netio.Pipe(wrap(a), wrap(b))
		done <- [2]int64{toA, toB}
	}()
	return left, right, done
}

func asIs(c net.Conn) io.ReadWriteCloser { return c }

func TestPipe(t *testing.T) {
	t.Parallel()
	left, right, done := piped(t, asIs)
	sent := make([]byte, 4<<20)
	rand.Read(sent)
	go func() {
		_, _ = left.Write(sent)
		_ = left.CloseWrite()
	}()
	got, err := io.ReadAll(right) // ends with the half-close alone
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("read %d bytes, %v; want the %d that were sent", len(got), err, len(sent))
	}
	if _, err := right.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	right.Close()
	if got, err := io.ReadAll(left); err != nil || string(got) != "answer" {
		t.Fatalf("after the half-close: %q, %v; want the answer", got, err)
	}
	if n := <-done; n != [2]int64{6, int64(len(sent))} {
		t.Errorf("Pipe returned %v bytes, want 6 and %d", n, len(sent))
	}
}

// TestPipeEnds: a connection without half-close, and a reset, end both directions.
func TestPipeEnds(t *testing.T) {
	t.Parallel()
	t.Run("no half-close", func(t *testing.T) {
		t.Parallel()
		left, right, done := piped(t, func(c net.Conn) io.ReadWriteCloser { return struct{ io.ReadWriteCloser }{c} })
		_ = left.CloseWrite()
		if _, err := io.ReadAll(right); err != nil {
			t.Fatal(err)
		}
		<-done
		if n, err := left.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes, want the end", n)
		}
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		left, right, done := piped(t, asIs)
		netio.Abort(left)
		<-done
		if n, err := right.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes, want the end", n)
		}
	})
}

// TestAbort: the peer reads a reset, not an empty answer.
func TestAbort(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	netio.Abort(server)
	if n, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after Abort: %d bytes, %v; want a reset", n, err)
	}
	client, server = pair(t)
	server.Close()
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: %v, want io.EOF", err)
	}
	a, b := net.Pipe() // a net.Pipe does not support resets
	netio.Abort(a)
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after Abort of a pipe: %v, want io.EOF", err)
	}
}

func TestCloseWrite(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	if err := netio.CloseWrite(server); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v, want io.EOF", err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if err := netio.CloseWrite(a); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of a pipe: %v, want errors.ErrUnsupported", err)
	}
}

// detour fails a test that copies through ReadFrom or WriteTo.
type detour struct {
	t *testing.T
	bytes.Buffer
}

func (d *detour) ReadFrom(io.Reader) (int64, error) { d.t.Error("ReadFrom was called"); return 0, nil }
func (d *detour) WriteTo(io.Writer) (int64, error)  { d.t.Error("WriteTo was called"); return 0, nil }

func TestCopy(t *testing.T) {
	t.Parallel()
	src, dst := &detour{t: t}, &detour{t: t}
	src.WriteString("some bytes")
	if n, err := netio.Copy(dst, src); n != 10 || err != nil || dst.String() != "some bytes" {
		t.Errorf("copied %d bytes, %v: %q", n, err, dst.String())
	}
	broken := errors.New("broken")
	if n, err := netio.Copy(dst, io.MultiReader(bytes.NewReader([]byte("x")), iotest.ErrReader(broken))); n != 1 || !errors.Is(err, broken) {
		t.Errorf("from a reader that breaks: %d bytes, %v", n, err)
	}
	closed, other := pair(t)
	closed.Close()
	if _, err := netio.Copy(closed, bytes.NewReader([]byte("x"))); !errors.Is(err, net.ErrClosed) {
		t.Errorf("to a closed connection: %v", err)
	}
	other.Close()
}

// script is a reader that returns the given numbers of bytes, and records the sizes of the buffers that it is given.
type script struct {
	reads   []int
	buffers []int
}

func (s *script) Read(p []byte) (int, error) {
	s.buffers = append(s.buffers, len(p))
	if len(s.reads) == 0 {
		return 0, io.EOF
	}
	n := s.reads[0]
	s.reads = s.reads[1:]
	return n, nil
}

// TestCopyHoldsLittleWhileIdle checks that a direction waits for data with a small buffer, and uses a large one while data flows.
func TestCopyHoldsLittleWhileIdle(t *testing.T) {
	t.Parallel()
	const small, large = 4 << 10, 128 << 10
	src := &script{reads: []int{100, small, large, small, 100, small - 1, small, 1}}
	var want int64
	for _, n := range src.reads {
		want += int64(n)
	}
	if n, err := netio.Copy(io.Discard, src); n != want || err != nil {
		t.Errorf("copied %d bytes, %v; want %d", n, err, want)
	}
	if diff := cmp.Diff([]int{small, small, large, large, large, small, small, large, small}, src.buffers); diff != "" {
		t.Errorf("buffers (-want +got):\n%s", diff)
	}
}

// BenchmarkPipe carries bytes through two connections over loopback, as a forwarded port does.
func BenchmarkPipe(b *testing.B) {
	left, inner := pair(b)
	right, outer := pair(b)
	go netio.Pipe(inner, outer)
	const chunk = 1 << 20
	b.SetBytes(chunk)
	go func() { _, _ = io.Copy(io.Discard, right) }()
	buf := make([]byte, chunk)
	for b.Loop() {
		if _, err := left.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}
