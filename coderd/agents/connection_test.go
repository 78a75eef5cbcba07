package agents_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

func TestConnection(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	var queries *coderdtest.Queries
	w.opts.DB, queries = coderdtest.Counted(t, w.DB)
	s := agents.New(w.opts)
	c := serve(t, s).client(id)
	st := hello(t, c)
	heartbeat(t, st, 1)
	a := w.agent(id)
	if w.status(id) != sdk.AgentConnected || a.Version != "v2.31.0" || a.Architecture != "arm64" || !slices.Equal(a.Subsystems, []string{"envbuilder", "exectrace"}) {
		t.Errorf("connected agent: got %+v", a)
	}
	before := queries.Count()
	for n := range uint64(200) {
		heartbeat(t, st, n)
	}
	if got := queries.Count() - before; got != 0 {
		t.Errorf("200 heartbeats made %d queries, want none", got)
	}
	if err := st.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "disconnection", w.is(id, sdk.AgentDisconnected))
	heartbeat(t, hello(t, c), 1)
	if err := w.is(id, sdk.AgentConnected)(); err != nil {
		t.Errorf("the agent is back and not connected: %v", err)
	}
}

func TestSecondStreamReplacesTheFirst(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	c := serve(t, agents.New(w.opts)).client(id)
	first := hello(t, c)
	heartbeat(t, first, 1)
	second := hello(t, c)
	heartbeat(t, second, 1)
	if _, err := first.Receive(); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("first stream: %v, want aborted", err)
	}
	heartbeat(t, second, 2)
	if err := w.is(id, sdk.AgentConnected)(); err != nil {
		t.Errorf("the end of the replaced stream disconnected the agent: %v", err)
	}
}

func TestSilentAgentIsDisconnected(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	w.opts.Silence = 50 * time.Millisecond
	st := hello(t, serve(t, agents.New(w.opts)).client(id))
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("silent stream: %v, want deadline exceeded", err)
	}
	testwait.Until(t, "disconnection", w.is(id, sdk.AgentDisconnected))
}

// TestCoordinatorIsASignOfLife: an agent that the coordinator hears from may rest, until the coordinator no longer hears from it.
func TestCoordinatorIsASignOfLife(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	var away atomic.Int64
	w.opts.Silence = 200 * time.Millisecond
	w.opts.Mesh = &fakeMesh{away: func() time.Duration { return time.Duration(away.Load()) }}
	st := hello(t, serve(t, agents.New(w.opts)).client(id))
	rest := func() uint32 {
		t.Helper()
		if err := st.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Heartbeat{Heartbeat: &agentpb.Heartbeat{}}}); err != nil {
			t.Fatal(err)
		}
		m, err := st.Receive()
		if err != nil || m.GetHeartbeatAck() == nil {
			t.Fatalf("got %v, %v; want an answer", m, err)
		}
		return m.GetHeartbeatAck().GetRestSeconds()
	}
	if got := rest(); got < 600 {
		t.Errorf("an agent that the coordinator hears from may rest for %d s, want ten minutes or more", got)
	}
	ended := make(chan error, 1)
	go func() { _, err := st.Receive(); ended <- err }()
	select {
	case err := <-ended:
		t.Fatalf("the stream of a resting agent ended: %v", err)
	case <-time.After(3 * w.opts.Silence):
	}
	away.Store(int64(time.Hour))
	if err := <-ended; connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("stream of an agent that nothing hears from: %v, want deadline exceeded", err)
	}
	testwait.Until(t, "disconnection", w.is(id, sdk.AgentDisconnected))
	w.opts.Silence = time.Minute // for the heartbeat of a busy machine; nothing has heard from the agent for longer
	st = hello(t, serve(t, agents.New(w.opts)).client(id))
	if got := rest(); got != 0 {
		t.Errorf("an agent that the coordinator does not hear from may rest for %d s, want heartbeats as usual", got)
	}
}

// TestUnansweredMessage: an agent that does not answer a message is not reachable in the mesh, though the coordinator hears from it.
func TestUnansweredMessage(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	w.opts.Silence = 100 * time.Millisecond
	w.opts.Mesh = &fakeMesh{away: func() time.Duration { return 0 }}
	s := agents.New(w.opts)
	s.Start()
	st := hello(t, serve(t, s).client(id))
	heartbeat(t, st, 1)
	if err := w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error { return agents.Shutdown(t.Context(), q, b.Workspace) }); err != nil {
		t.Fatal(err)
	}
	if m, err := st.Receive(); err != nil || m.GetShutdown() == nil {
		t.Fatalf("got %v, %v; want a shutdown", m, err)
	}
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("stream of an agent that does not answer: %v, want deadline exceeded", err)
	}
}

func TestShutdownAndRevocation(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	revoked := make(chan uuid.UUID, 8)
	w.opts.Mesh = &fakeMesh{revoked: revoked}
	s := agents.New(w.opts)
	s.Start()
	c := serve(t, s).client(id)
	st := hello(t, c)
	heartbeat(t, st, 1)
	if err := w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error { return agents.Shutdown(t.Context(), q, b.Workspace) }); err != nil {
		t.Fatal(err)
	}
	msg, err := st.Receive()
	if err != nil || msg.GetShutdown() == nil {
		t.Fatalf("got %v, %v, want a shutdown", msg, err)
	}
	w.revoke(b.Workspace)
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("stream of a revoked agent: %v, want permission denied", err)
	}
	if got := <-revoked; got != id {
		t.Errorf("the mesh revoked %s, want %s", got, id)
	}
	again := hello(t, c)
	if _, err := again.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("new stream of a revoked agent: %v, want permission denied", err)
	}
}

// TestLostRevocationIsFound checks that the server finds a revocation that was announced while the listening connection was
// lost.
func TestLostRevocationIsFound(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	s := agents.New(w.opts)
	s.Start()
	st := hello(t, serve(t, s).client(id))
	heartbeat(t, st, 1)
	w.Exec(`UPDATE workspace_agents SET token_hash = NULL WHERE workspace_id = $1`, b.Workspace) // without a notification
	if err := w.PubSub.Publish(t.Context(), "agents_revoked", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Receive(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("stream: %v, want permission denied", err)
	}
}

// TestAgentsOfOtherServers checks that a server leaves alone the agents that are connected to a running server, however long ago they
// connected, and takes those of a server that was killed for disconnected.
func TestAgentsOfOtherServers(t *testing.T) {
	t.Parallel()
	w, _, stays := running(t)
	lost := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(lost))
	alive, killed := uuid.New(), uuid.New()
	w.Exec("INSERT INTO servers (id, beat_at) VALUES ($1, now() + interval '1 day')", alive)
	w.Exec("INSERT INTO servers (id, beat_at) VALUES ($1, now() - interval '1 minute')", killed)
	for id, server := range map[uuid.UUID]uuid.UUID{stays: alive, lost: killed} {
		opts := w.opts
		opts.ServerID = server
		st := hello(t, serve(t, agents.New(opts)).client(id))
		heartbeat(t, st, 1)
		defer st.CloseResponse()
		testwait.Until(t, "connection", w.is(id, sdk.AgentConnected))
	}
	opts := w.opts
	opts.ReturnGrace = 100 * time.Millisecond
	own := agents.New(opts)
	t.Cleanup(own.Stop)
	own.Start()
	testwait.Until(t, "the end of the killed server's agent", w.is(lost, sdk.AgentDisconnected))
	if err := w.is(stays, sdk.AgentConnected)(); err != nil {
		t.Errorf("another server's agent counts as disconnected: %v", err)
	}
	w.Exec("UPDATE servers SET beat_at = now() - interval '1 minute'")
	testwait.Until(t, "the end of the other server's agent", w.is(stays, sdk.AgentDisconnected))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	w, _, here := running(t)
	gone := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(gone))
	before := agents.New(w.opts)
	sv := serve(t, before)
	for _, id := range []uuid.UUID{here, gone} {
		st := hello(t, sv.client(id))
		heartbeat(t, st, 1)
		defer st.CloseResponse()
	}
	before.Stop()
	for _, id := range []uuid.UUID{here, gone} {
		if err := w.is(id, sdk.AgentConnected)(); err != nil {
			t.Errorf("the end of the server disconnected agent %s: %v", id, err)
		}
	}
	connected := *w.agent(here).LastConnectedAt

	opts := w.opts
	opts.ReturnGrace = 300 * time.Millisecond
	after := agents.New(opts)
	st := hello(t, serve(t, after).client(here))
	heartbeat(t, st, 1)
	after.Start()
	testwait.Until(t, "the sweep", w.is(gone, sdk.AgentDisconnected))
	if err := w.is(here, sdk.AgentConnected)(); err != nil {
		t.Errorf("the sweep disconnected an agent that came back: %v", err)
	}
	if got := *w.agent(here).LastConnectedAt; !got.Equal(connected) {
		t.Errorf("coming back was written: %v, want %v", got, connected)
	}
	if err := st.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "disconnection", w.is(here, sdk.AgentDisconnected))
}
