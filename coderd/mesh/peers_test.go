package mesh_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// peers returns the mesh as a user sees it, by name.
func (w *world) peers(t *testing.T, user string) map[string]sdk.MeshPeer {
	t.Helper()
	all, err := w.As(user).MeshPeers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]sdk.MeshPeer{}
	for _, p := range all.Peers {
		byName[p.Name] = p
	}
	return byName
}

// agentAPI answers the server's questions to an agent. It also reports a client that the agent does not have.
type agentAPI struct {
	agentpbconnect.UnimplementedAgentAPIHandler
	node    *tailnet.Node
	claimed uuid.UUID
}

func (a agentAPI) Paths(ctx context.Context, _ *connect.Request[agentpb.PathsRequest]) (*connect.Response[agentpb.PathsResponse], error) {
	answer := &agentpb.PathsResponse{Paths: []*agentpb.Path{{Peer: a.claimed[:], Way: agentpb.Path_WAY_DIRECT}}}
	for _, p := range a.node.Measure(ctx, func(uuid.UUID) bool { return true }) {
		answer.Paths = append(answer.Paths, &agentpb.Path{
			Peer: p.ID[:], Way: map[tailnet.Path]agentpb.Path_Way{tailnet.PathDirect: agentpb.Path_WAY_DIRECT, tailnet.PathRelay: agentpb.Path_WAY_RELAY}[p.Path],
			LatencyUs: p.Latency.Microseconds(), Rx: p.Rx, Tx: p.Tx,
		})
	}
	return connect.NewResponse(answer), nil
}

func TestWhoSeesWhichPeers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	const name = "ann/dev.main"
	agent, id := w.joinAgent(t)
	agent.Serve(8080, capitals)
	laptop := w.joinUser(t, "ann")
	if err := laptop.Client.Subscribe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	stranger := w.joinUser(t, "bob")
	_, api := agentpbconnect.NewAgentAPIHandler(agentAPI{node: agent.Node, claimed: stranger.Node.ID()})
	agent.ServeRPC(api)
	over, err := laptop.Node.Dial(t.Context(), "tcp", netip.AddrPortFrom(tailnet.Addr(id), 8080))
	if err != nil {
		t.Fatal(err)
	}
	converse(t, over)
	defer over.Close()
	shared := w.joinRack(t, tailnet.InboundNone)
	if _, err := shared.Client.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := w.dial(t, id)
	converse(t, conn)
	defer conn.Close()
	for user, want := range map[string][]string{
		"ann":  {name, "ann", "server"},
		"bob":  {"bob", "server"},
		"tom":  {"rack-1", "server"},
		"olga": {name, "ann", "bob", "rack-1", "server"},
	} {
		var got []string
		peers := w.peers(t, user)
		for shown, p := range peers {
			got = append(got, shown)
			for _, link := range p.Links {
				if !slices.ContainsFunc(values(peers), func(o sdk.MeshPeer) bool { return o.ID == link }) {
					t.Errorf("%s learns from %s that %s exists", user, shown, link)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %v, want %v", user, got, want)
		}
	}
	var seen map[string]sdk.MeshPeer
	var a sdk.MeshPeer
	testwait.Until(t, "the agent is shown with its path", func() error {
		seen = w.peers(t, "ann")
		a = seen[name]
		shown := a.Kind == sdk.PeerAgent && a.Connected && a.Path != sdk.PathUnknown && a.RxBytes > 0 && a.TxBytes > 0 && a.LastSeen != nil && a.LatencyMillis > 0
		return testwait.Unless(shown, "it is shown as %+v", a)
	})
	for _, user := range []string{"ann", "olga"} {
		// A list waits 0.8 s for answers of agents, and a busy machine may take longer.
		testwait.Until(t, user+" sees the agent's client", func() error {
			clients := w.peers(t, user)[name].Clients
			shown := len(clients) == 1 && clients[0].ID == laptop.Node.ID() && clients[0].Path != sdk.PathUnknown && clients[0].LatencyMillis > 0 && clients[0].RxBytes > 0
			return testwait.Unless(shown, "%s sees the agent's clients as %+v", user, clients)
		})
	}
	if want := []uuid.UUID{seen["ann"].ID, seen["server"].ID}; fmt.Sprint(sorted(a.Links)) != fmt.Sprint(sorted(want)) {
		t.Errorf("the agent's links are %v, want %v", a.Links, want)
	}
}

func values(m map[string]sdk.MeshPeer) (all []sdk.MeshPeer) {
	for _, p := range m {
		all = append(all, p)
	}
	return all
}

func sorted(ids []uuid.UUID) []string {
	var all []string
	for _, id := range ids {
		all = append(all, id.String())
	}
	slices.Sort(all)
	return all
}
