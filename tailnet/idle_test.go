package tailnet_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// TestMeasureIdlePeer: a peer with which nothing was exchanged answers pings, and the answer tells its path.
func TestMeasureIdlePeer(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: true})
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundNone)
	peers := a.Measure(timeout(t), func(id uuid.UUID) bool { return id == b.ID() })
	if len(peers) != 1 || peers[0].Path != tailnet.PathRelay || peers[0].Latency <= 0 {
		t.Errorf("got %+v, want a relayed path with a latency", peers)
	}
}

// BenchmarkWake measures how long the first message over an idle connection and its answer take. IDLE is for how long the connection is idle; after
// three minutes WireGuard needs a handshake and magicsock a new search for the direct path.
func BenchmarkWake(b *testing.B) {
	idle, err := time.ParseDuration(os.Getenv("IDLE"))
	if err != nil {
		b.Skip("IDLE is not a duration")
	}
	r := tailnettest.NewRelay(b)
	near, far := tailnettest.NewNode(b, r, tailnet.Options{}), tailnettest.NewNode(b, r, tailnet.Options{})
	introduceOnce(b, near, far)
	tailnettest.Echo(b, far, 80)
	c, err := near.Dial(b.Context(), "tcp", at(far, 80))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		time.Sleep(idle)
		b.StartTimer()
		if _, err := c.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
	}
}
