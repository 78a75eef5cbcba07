package mesh_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
)

func TestServerDialsAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.KeepAgents(time.Millisecond)
	if _, err := w.DialAgent(t.Context(), uuid.New(), 8080); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("dial before the server has joined: %v", err)
	}
	w.start(t)
	agent, id := w.joinAgent(t)
	agent.Serve(8080, capitals)
	agent.Serve(meshport.Terminal, capitals)
	for _, port := range []uint16{8080, meshport.Terminal, 8080} {
		var conn net.Conn
		testwait.Until(t, "the agent answers", func() (err error) {
			conn, err = w.DialAgent(t.Context(), id, port)
			return err
		})
		converse(t, conn)
		if w.Introduced() != 1 {
			t.Errorf("introduced to %d agents while a connection is open", w.Introduced())
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil { // a second Close does not count again
			t.Error(err)
		}
		testwait.Until(t, "the introduction is given up", func() error { return testwait.Equal(w.Introduced(), 0) })
	}
	if !w.AgentConnected(id) || w.AgentConnected(uuid.New()) {
		t.Error("AgentConnected is wrong")
	}
}

func TestManyConnectionsToOneAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.KeepAgents(0)
	w.start(t)
	agent, id := w.joinAgent(t)
	agent.Serve(8080, capitals)
	done := make(chan error, 16)
	for range cap(done) {
		go func() {
			conn, err := w.DialAgent(t.Context(), id, 8080)
			if err == nil {
				converse(t, conn)
				err = conn.Close()
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAgentThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	_, id := w.RunningRow("ann", "dev")
	if _, err := w.DialAgent(t.Context(), id, 8080); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("an agent that never came: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.DialAgent(ctx, id, 8080); err == nil || fault.CodeOf(err) == fault.Unavailable {
		t.Errorf("a caller that has gone: %v", err)
	}
	p := w.joinRack(t, tailnet.InboundAll)
	p.Serve(8080, capitals)
	if _, err := w.DialAgent(t.Context(), p.Node.ID(), 8080); fault.CodeOf(err) != fault.Internal {
		t.Errorf("dial a provisioner as an agent: %v", err)
	}
}

func TestRevocationEndsConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	agent, id := w.joinAgent(t)
	agent.Serve(8080, capitals)
	conn := w.dial(t, id)
	defer conn.Close()
	laptop := w.joinUser(t, "ann")
	if err := laptop.Client.Subscribe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	theirs, err := laptop.Dial(id, 8080, coderdtest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	w.RevokeAgents(id)
	ends(t, conn)
	ends(t, theirs)
	<-agent.Client.Done()
	if fault.CodeOf(agent.Client.Err()) != fault.Forbidden {
		t.Errorf("the agent's client ended with %v", agent.Client.Err())
	}
	if w.AgentConnected(id) {
		t.Error("a revoked agent counts as connected")
	}
}
