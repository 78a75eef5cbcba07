package agent

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// loopbackMesh is a Mesh with just what a daemon needs to begin and to end.
type loopbackMesh struct{ Mesh }

func (loopbackMesh) Listen(uint16) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func (loopbackMesh) HandleTCP(func(src, dst netip.AddrPort) (func(net.Conn), bool)) {}

func (loopbackMesh) HandleUDP(func(src, dst netip.AddrPort) (func(net.Conn), bool)) {}

func (loopbackMesh) Close() error { return nil }

// TestManifestWhileClosing: a manifest that arrives while the agent ends leaves no workspace behind: no sockets, and no goroutines
// (TestMain).
func TestManifestWhileClosing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := newDaemon(Options{Logger: slog.New(slog.DiscardHandler), StateDir: dir, LogDir: dir}, loopbackMesh{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	if err := d.accept(&agentpb.ManifestResponse{WorkspaceId: id[:], AgentName: "main"}); !errors.Is(err, errClosing) {
		t.Errorf("accept: %v, want %v", err, errClosing)
	}
	if _, err := os.Stat(dir + "/" + id.String() + "-main/units"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's folder: %v, want it gone", err)
	}
}
