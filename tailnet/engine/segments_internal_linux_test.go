package engine

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// TestRelaySegments checks that the first connection to a relay already passes paths that drop large packets in silence. The address stands
// for a relay on another machine.
func TestRelaySegments(t *testing.T) {
	t.Parallel()
	relay, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	conn, err := idleLink(t).transport().DialContext(t.Context(), "tcp", relay.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var segment int
	err = netio.Control(conn.(*net.TCPConn), func(fd int) (err error) {
		segment, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		return err
	})
	if err != nil || segment > 1220 {
		t.Errorf("segments of %d bytes, %v; want at most 1220", segment, err)
	}
}
