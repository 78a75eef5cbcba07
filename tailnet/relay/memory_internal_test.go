package relay

import (
	"bufio"
	"context"
	"net"
	"runtime"
	"testing"

	"tailscale.com/derp"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestIdleClientIsCheap bounds the memory that the relay holds for a client that sends and receives nothing. The library allocates both
// queues of a client when it connects, and every packet touches another place in them.
func TestIdleClientIsCheap(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	const clients, limit = 32, 150 << 10 // bytes
	before := alive()
	var open []*derp.Client
	for range clients {
		open = append(open, connect(ctx, t, s))
	}
	each := (alive() - before) / clients
	t.Logf("%d bytes for each of %d clients", each, s.Connected())
	if each > limit {
		t.Errorf("an idle client takes %d bytes of the relay's memory, want at most %d", each, limit)
	}
	runtime.KeepAlive(open)
}

// connect returns a client of the relay that is admitted and welcomed.
func connect(ctx context.Context, t *testing.T, s *Server) *derp.Client {
	t.Helper()
	secret := key.NewNode()
	s.Admit(tailnet.PublicKey(idOf(secret.Public())))
	ours, theirs := net.Pipe()
	s.background.Go(func() {
		s.relay.Accept(ctx, theirs, bufio.NewReadWriter(bufio.NewReader(theirs), bufio.NewWriter(theirs)), "127.0.0.1:0")
	})
	t.Cleanup(func() { ours.Close() })
	client, err := derp.NewClient(secret, ours, bufio.NewReadWriter(bufio.NewReader(ours), bufio.NewWriter(ours)), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Recv(); err != nil {
		t.Fatalf("the relay does not welcome the client: %v", err)
	}
	return client
}

func alive() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
