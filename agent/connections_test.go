package agent_test

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// seen returns the reported connection of a kind, or nil.
func (w *world) seen(kind agentpb.Connection_Kind) *agentpb.Connection {
	for _, c := range w.connections {
		if c.GetKind() == kind {
			return c
		}
	}
	return nil
}

// TestConnectionsAreReported checks that the server learns of each session when it begins and when it has ended, also when it did not answer
// meanwhile.
func TestConnectionsAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	client := w.dial(t)
	w.until(t, "report of a new process", func() bool { return w.firsts == 1 })
	w.until(t, "report of the open session", func() bool {
		c := w.seen(agentpb.Connection_KIND_SSH)
		return c != nil && c.GetDisconnectedAt() == nil && c.GetConnectedAt().IsValid() && len(c.GetPeerAddress()) == 16
	})

	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Setenv("CODER_SSH_SESSION_TYPE", "vscode"); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Output("echo hello"); err != nil {
		t.Fatal(err)
	}
	w.until(t, "report of an editor's session", func() bool { return w.seen(agentpb.Connection_KIND_VSCODE) != nil && len(w.connections) == 1 })

	w.update(func() { w.refuseConnections = true })
	client.Close()
	w.cut()
	w.update(func() { w.refuseConnections = false })
	w.until(t, "report of the end", func() bool {
		c := w.seen(agentpb.Connection_KIND_VSCODE)
		return c.GetDisconnectedAt() != nil && c.GetBytesIn() > 0 && c.GetBytesOut() > 0 && c.GetReason() != ""
	})
	if w.firsts != 1 || len(w.connections) != 1 {
		t.Errorf("%d reports of a new process, connections: %v", w.firsts, w.connections)
	}
}

// TestPortsAreReported checks that all connections of one client to one port are one visit, which stays open between them.
func TestPortsAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	echo := listen(t)
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	src, dst := netip.MustParseAddrPort("[fd00::7]:1234"), echo.Addr().(*net.TCPAddr).AddrPort()
	for range 2 {
		serve, ok := w.tcp(src, dst)
		if !ok {
			t.Fatal("the port is not served")
		}
		ours, theirs := net.Pipe()
		go serve(theirs)
		if _, err := ours.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(ours, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		ours.Close()
	}
	w.until(t, "report of the port", func() bool {
		c := w.seen(agentpb.Connection_KIND_PORT_FORWARDING)
		return c != nil && c.GetPort() == uint32(dst.Port()) && netip.AddrFrom16([16]byte(c.GetPeerAddress())) == src.Addr() && c.GetDisconnectedAt() == nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.connections) != 1 {
		t.Errorf("two connections to a port are %d visits", len(w.connections))
	}
}

// TestPathOfShortVisits checks that the report of a visit has its path although the client left the mesh before the report.
func TestPathOfShortVisits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	w.until(t, "report of a new process", func() bool { return w.firsts == 1 })
	id := uuid.New()
	w.update(func() {
		w.refuseConnections = true
		w.paths = []tailnet.PeerStatus{{ID: id, Path: tailnet.PathDirect, Endpoint: netip.MustParseAddrPort("192.0.2.7:41641")}}
	})
	port := listen(t)
	t.Cleanup(func() { port.Close() })
	serve, ok := w.tcp(netip.AddrPortFrom(tailnet.Addr(id), 1234), port.Addr().(*net.TCPAddr).AddrPort())
	if !ok {
		t.Fatal("the port is not served")
	}
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); serve(theirs) }()
	conn, err := port.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	ours.Close()
	<-served
	w.update(func() { w.paths = nil })
	w.cut()
	w.update(func() { w.refuseConnections = false })
	w.until(t, "report of the port", func() bool { return w.seen(agentpb.Connection_KIND_PORT_FORWARDING) != nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.seen(agentpb.Connection_KIND_PORT_FORWARDING); c.GetWay() != agentpb.Path_WAY_DIRECT || c.GetEndpoint() != "192.0.2.7:41641" {
		t.Errorf("reported %v by %q", c.GetWay(), c.GetEndpoint())
	}
}
