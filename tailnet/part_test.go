package tailnet_test

import (
	"context"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// TestPeersPartUnderTraffic checks that a node keeps working and can be closed while clients join, send, close and are
// removed at the same moment, as a coordinator does it. The engine once had a lock cycle here.
func TestPeersPartUnderTraffic(t *testing.T) {
	t.Parallel()
	relay := tailnettest.NewRelay(t)
	host := tailnettest.NewNode(t, relay, tailnet.Options{})
	listener, err := host.Listen(7)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { io.Copy(conn, conn); conn.Close() })
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 5 {
				client := tailnettest.NewNode(t, relay, tailnet.Options{})
				tailnettest.Introduce(t, client, host, tailnet.InboundNone, tailnet.InboundAll)
				conn, err := client.Dial(ctx, "tcp", netip.AddrPortFrom(host.Addr(), 7))
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				if _, err := conn.Write([]byte("hello")); err != nil {
					t.Errorf("write: %v", err)
				}
				conn.Close()
				var parting sync.WaitGroup
				parting.Go(func() { host.Remove(client.ID()) })
				if err := client.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				parting.Wait()
			}
		})
	}
	clients.Wait()
	closed := make(chan struct{})
	go func() { host.Close(); close(closed) }()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("the node cannot be closed: its engine is stuck")
	}
	serving.Wait()
}
