package tailnet

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestWatchNoticesSleep checks that a node looks for new paths after a sleep, and forgets its sessions after its clock
// was set back.
func TestWatchNoticesSleep(t *testing.T) {
	t.Parallel()
	type reading struct {
		wall time.Time
		mono time.Duration
	}
	tick, readings := make(chan time.Time), make(chan reading, 1)
	at := reading{wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	readings <- at
	n, err := newNode(Options{ID: uuid.New()}, clock{
		now: func() (time.Time, time.Duration) {
			r := <-readings
			return r.wall, r.mono
		},
		tick: tick,
		stop: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	peer := Peer{NodeInfo: NodeInfo{ID: uuid.New(), Key: NewPrivateKey().Public(), Disco: DiscoKey{1}}}
	if err := n.Upsert(peer); err != nil {
		t.Fatal(err)
	}

	for _, step := range []struct {
		name       string
		wall, mono time.Duration
		want       uint64 // rebinds
		forgotten  uint64 // sessions
	}{
		{"awake", time.Second, time.Second, 0, 0},
		{"busy machine", 8 * time.Second, 8 * time.Second, 0, 0},
		{"clock adjusted", 7 * time.Second, time.Second, 0, 0},
		{"clock adjusted backward", -2 * time.Second, time.Second, 0, 0},
		{"clock set back", -time.Hour, time.Second, 0, 1},
		{"slept", time.Hour, time.Second, 1, 1},
		{"slept briefly", 20 * time.Second, time.Second, 2, 1},
		{"awake again", time.Second, time.Second, 2, 1},
		{"process stopped", time.Minute, time.Minute, 3, 1},
	} {
		at = reading{at.wall.Add(step.wall), at.mono + step.mono}
		tick <- time.Time{}
		readings <- at
		// The watcher takes the next tick only after it has handled this one. The extra tick has no effect.
		tick <- time.Time{}
		readings <- at
		if got := n.rebinds.Load(); got != step.want {
			t.Errorf("%s: got %d rebinds in all, want %d", step.name, got, step.want)
		}
		if got, _ := n.peers.id(peer.ID).live.handshakes(); got != step.forgotten {
			t.Errorf("%s: the session was forgotten %d times in all, want %d", step.name, got, step.forgotten)
		}
	}
}
