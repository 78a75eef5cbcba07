package agents_test

import (
	"compress/gzip"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestOnlyLongAnswersAreCompressed: a server with many agents must not compress the answers to their heartbeats, which would grow.
func TestOnlyLongAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.store(b, true, resource(id, func(a *provisionerpb.Agent) { a.Env = map[string]string{"LONG": strings.Repeat("long ", 2000)} }))
	s := serve(t, agents.New(w.opts))
	addr := netip.AddrFrom4([4]byte{127, 0, 2, 1})
	s.callers.Store(addr, id)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: addr.AsSlice()}}
	var compressed atomic.Int64
	client := agentpbconnect.NewAgentServiceClient(coderdtest.RPCClient(t, dialer.DialContext), s.url, connect.WithAcceptCompression("gzip",
		func() connect.Decompressor { compressed.Add(1); return new(gzip.Reader) }, func() connect.Compressor { return gzip.NewWriter(nil) }))

	st := hello(t, client)
	heartbeat(t, st, 1)
	heartbeat(t, st, 2)
	if n := compressed.Load(); n != 0 {
		t.Errorf("the answers to heartbeats needed %d decompressors", n)
	}
	if _, err := client.Manifest(t.Context(), connect.NewRequest(&agentpb.ManifestRequest{})); err != nil {
		t.Fatal(err)
	}
	if compressed.Load() == 0 {
		t.Error("a manifest of 8 KiB is not compressed")
	}
}
