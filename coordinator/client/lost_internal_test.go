package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
)

// TestLosses checks that a client removes lost peers in the order of their loss, and that a peer that comes and goes takes no more memory
// each time.
func TestLosses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		c.welcome = &protocol.Welcome{GraceSeconds: 60}
		c.node = noNode{}
		var ids []uuid.UUID
		for range 3 {
			id := uuid.New()
			ids = append(ids, id)
			c.peers[id] = &remote{}
			c.lose(id, c.peers[id])
			time.Sleep(time.Second)
		}
		c.lose(ids[0], c.peers[ids[0]]) // again: its grace period goes on
		for range 1000 {
			c.peers[ids[1]] = &remote{} // it returns
			c.lose(ids[1], c.peers[ids[1]])
		}
		if n := len(c.lost); n > 100 {
			t.Errorf("%d losses are kept", n)
		}
		wait := c.sweep(time.Now())
		if len(c.peers) != 3 || wait != 57*time.Second {
			t.Errorf("%d peers are left, and the next one is removed in %s", len(c.peers), wait)
		}
		time.Sleep(wait)
		wait = c.sweep(time.Now())
		if c.peers[ids[0]] != nil || len(c.peers) != 2 || wait != 2*time.Second {
			t.Errorf("%d peers are left, and the next one is removed in %s", len(c.peers), wait)
		}
		time.Sleep(wait)
		if wait = c.sweep(time.Now()); c.peers[ids[2]] != nil || len(c.peers) != 1 || wait != time.Second {
			t.Errorf("%d peers are left, and the next one is removed in %s", len(c.peers), wait)
		}
		time.Sleep(wait)
		if c.sweep(time.Now()); len(c.peers) != 0 || c.lost != nil {
			t.Errorf("%d peers and %d losses are left", len(c.peers), len(c.lost))
		}
	})
}

// noNode is a node that forgets.
type noNode struct{ Node }

func (noNode) Remove(uuid.UUID) {}
