package sendbuffer

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFit compares a connection's buffer with what the system grants. A system that would grow the buffer further must
// keep doing so.
func TestFit(t *testing.T) {
	granted, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	most, err := grown()
	if err != nil {
		t.Fatal(err)
	}
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"TCP": func(c net.Conn) net.Conn { return c },
		"TLS": func(c net.Conn) net.Conn { return tls.Client(c, &tls.Config{}) },
	} {
		c := dial(t)
		want := sizeOf(t, c)
		if granted > most {
			want = granted
		}
		Fit(wrap(c))
		if got := unsentOf(t, c); got != leastAhead {
			t.Errorf("over %s: %d bytes may wait in the kernel, want %d", name, got, leastAhead)
		}
		if got := sizeOf(t, c); got != want {
			t.Errorf("over %s: the buffer has %d bytes, want %d: the system grants %d and grows buffers to %d", name, got, want, granted, most)
		}
	}

	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if Fit(near) != near {
		t.Error("a pipe is wrapped")
	}
}

// TestAhead writes at several rates: what may wait in the kernel follows them.
func TestAhead(t *testing.T) {
	raw := dial(t)
	c := Fit(raw).(*conn)
	now := time.Now()
	const step = 5 * time.Millisecond
	for _, tc := range []struct {
		mbits float64
		want  int
	}{
		{1, leastAhead},
		{100, 62500},
		{110, 62500}, // hardly more
		{1000, mostAhead},
		{40, 25000},
		{20, leastAhead},
	} {
		for range 20 {
			now = now.Add(step)
			c.wrote(int(tc.mbits*1e6/8*step.Seconds()), now)
		}
		if got := unsentOf(t, raw); got < tc.want*99/100 || got > tc.want {
			t.Errorf("at %.0f Mbit/s %d bytes may wait, want %d", tc.mbits, got, tc.want)
		}
	}
	now = now.Add(time.Hour) // after a pause, a first write says nothing
	c.wrote(1<<20, now)
	if got := unsentOf(t, raw); got != leastAhead {
		t.Errorf("after a pause %d bytes may wait, want %d", got, leastAhead)
	}
}

// TestWrites sends through a connection that learns.
func TestWrites(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(got)
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // what is missing is seen below
		got <- all
	}()
	raw, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := Fit(raw)
	want := make([]byte, 8<<20)
	for i := range want {
		want[i] = byte(i >> 8)
	}
	for rest := want; len(rest) > 0; {
		n, err := c.Write(rest[:min(len(rest), 16<<10)])
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-got, want) {
		t.Error("what arrived differs")
	}
}

func dial(t *testing.T) *net.TCPConn {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func sizeOf(t *testing.T, c *net.TCPConn) int { return option(t, c, unix.SOL_SOCKET, unix.SO_SNDBUF) }

func unsentOf(t *testing.T, c *net.TCPConn) int {
	return option(t, c, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
}

func option(t *testing.T, c *net.TCPConn, level, name int) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if ctl := raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), level, name) }); ctl != nil || err != nil {
		t.Fatal(ctl, err)
	}
	return n
}
