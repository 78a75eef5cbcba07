package webdial_test

import (
	"net"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/webdial"
)

// TestCautious checks that both ends of a cautious connection send segments that fit every path, and that the loopback address keeps its own.
func TestCautious(t *testing.T) {
	t.Parallel()
	for host, small := range map[string]bool{"127.0.0.2": true, "127.0.0.1": false} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		near, err := webdial.Cautious(&http.Transport{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		for end, conn := range map[string]net.Conn{"client": near, "server": far} {
			var segment int
			err := netio.Control(conn.(*net.TCPConn), func(fd int) (err error) {
				segment, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
				return err
			})
			if err != nil || (segment <= 1220) != small {
				t.Errorf("the %s of a connection to %s: segments of %d bytes, %v", end, host, segment, err)
			}
		}
	}
}
