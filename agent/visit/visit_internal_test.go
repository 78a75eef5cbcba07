package visit

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/visa"
)

// A visit's connections are cut when its newest visa expires, and no others are.
func TestVisits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Set
		id := ID{netip.MustParseAddr("fd7a:115c:a1e0::1"), uuid.New(), 8080}
		other := ID{netip.MustParseAddr("fd7a:115c:a1e0::2"), id.Visit, 8080}
		open := func(id ID, lifetime time.Duration) (peer net.Conn, leave func()) {
			peer, conn := net.Pipe()
			t.Cleanup(func() { peer.Close() })
			return peer, r.Enter(id, conn, time.Now().Add(lifetime))
		}
		ended := func(peer net.Conn) bool {
			t.Helper()
			err := peer.SetReadDeadline(time.Now().Add(time.Millisecond))
			if err == nil {
				_, err = peer.Read(make([]byte, 1))
			}
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)
		}
		a, leaveA := open(id, visa.Lifetime)
		b, leaveB := open(other, visa.Lifetime)
		time.Sleep(visa.Lifetime - time.Second)
		r.Renew(id, time.Now().Add(visa.Lifetime))
		r.Renew(id, time.Now()) // an older visa shortens nothing
		time.Sleep(2 * time.Second)
		if ended(a) || !ended(b) {
			t.Error("after a renewal: the wrong visit has ended")
		}
		c, leaveC := open(id, time.Second) // neither does a new connection
		leaveB()
		time.Sleep(visa.Lifetime - 3*time.Second)
		if ended(a) || ended(c) {
			t.Error("a visit ended before its newest visa")
		}
		time.Sleep(2 * time.Second)
		if !ended(a) || !ended(c) {
			t.Error("a visit outlasts its visa")
		}
		leaveA()
		leaveC()
		d, leaveD := open(id, visa.Lifetime)
		if leaveD(); len(r.open) != 0 {
			t.Errorf("%d visits are left", len(r.open))
		}
		time.Sleep(2 * visa.Lifetime)
		if ended(d) {
			t.Error("a connection that has left is cut")
		}
	})
}
