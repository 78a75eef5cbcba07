package agents_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestUsageAtOtherServers checks that servers show the latency and the sessions of an agent that is connected to another server, also when
// they start later, and nothing once it has left.
func TestUsageAtOtherServers(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	start := func() *agents.Service {
		opts := w.opts
		opts.ServerID, opts.UsageInterval = uuid.New(), 20*time.Millisecond
		w.Exec("INSERT INTO servers (id, beat_at) VALUES ($1, now() + interval '1 day')", opts.ServerID)
		s := agents.New(opts)
		t.Cleanup(s.Stop)
		s.Start()
		return s
	}
	near, far := start(), start()
	c := serve(t, near).client(id)
	st := hello(t, c)
	heartbeat(t, st, 1)
	if _, err := c.Stats(t.Context(), connect.NewRequest(&agentpb.StatsRequest{Ssh: 2, PortForward: 1})); err != nil {
		t.Fatal(err)
	}
	token := w.Token("ann")
	for name, s := range map[string]*agents.Service{"a server that ran": far, "a server that starts later": start()} {
		u := w.Serve(s)
		var a sdk.WorkspaceAgent
		testwait.Until(t, "the latency and the sessions at "+name, func() error {
			get(t, u, token, id.String(), &a)
			return testwait.Unless(a.Latency["default"].LatencyMillis == 1.5 && a.Connections != nil, "latency %v, connections %+v", a.Latency, a.Connections)
		})
		if diff := cmp.Diff(&sdk.AgentConnections{SSH: 2, PortForward: 1}, a.Connections); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	st.CloseRequest()
	st.CloseResponse()
	testwait.Until(t, "the end of the connection", w.is(id, sdk.AgentDisconnected))
	var a sdk.WorkspaceAgent
	get(t, w.Serve(far), token, id.String(), &a)
	if a.Latency != nil || a.Connections != nil {
		t.Errorf("after it left: latency %v, sessions %v", a.Latency, a.Connections)
	}
}
