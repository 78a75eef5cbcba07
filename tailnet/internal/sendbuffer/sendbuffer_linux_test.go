package sendbuffer

import (
	"crypto/tls"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEnlarge compares a connection's buffer with what the system grants. A system that would grow the buffer further must keep doing so.
func TestEnlarge(t *testing.T) {
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
		Enlarge(wrap(c))
		if got := unsentOf(t, c); got != unsent {
			t.Errorf("over %s: %d bytes may wait in the kernel, want %d", name, got, unsent)
		}
		if got := sizeOf(t, c); got != want {
			t.Errorf("over %s: the buffer has %d bytes, want %d: the system grants %d and grows buffers to %d", name, got, want, granted, most)
		}
	}

	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	Enlarge(near)
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
