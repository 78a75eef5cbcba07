package mesh_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/secret"
	"github.com/codermesh/codermesh/tailnet"
)

// peers returns the mesh as a user sees it, by name.
func (w *world) peers(t *testing.T, user string) map[string]sdk.MeshPeer {
	t.Helper()
	client := sdk.New(w.url, secret.Token(user), sdk.Options{})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	all, err := client.MeshPeers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]sdk.MeshPeer{}
	for _, p := range all.Peers {
		byName[p.Name] = p
	}
	return byName
}

func TestWhoSeesWhichPeers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t)
	token, id := w.agent()
	agent := w.joinAgent(t, token)
	agent.Serve(8080, capitals)
	laptop := w.joinUser(t, "ann")
	if err := laptop.Client.Subscribe(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	stranger := w.joinUser(t, "bob")
	w.mu.Lock()
	w.paths = func(ctx context.Context, _ uuid.UUID) ([]tailnet.PeerStatus, error) {
		// The agent also reports a client that it does not have.
		all := agent.Node.Measure(ctx, func(uuid.UUID) bool { return true })
		return append(all, tailnet.PeerStatus{ID: stranger.Node.ID(), Path: tailnet.PathDirect}), nil
	}
	w.mu.Unlock()
	over, err := laptop.Node.Dial(t.Context(), "tcp", netip.AddrPortFrom(tailnet.Addr(id), 8080))
	if err != nil {
		t.Fatal(err)
	}
	converse(t, over)
	defer over.Close()
	shared := w.join(t, coderdtest.Joining{Kind: coordinator.KindProvisioner, Header: provisionerHeader("rack-1", psk.Reveal()), Inbound: tailnet.InboundNone}).Joined()
	if _, err := shared.Client.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := w.DialAgent(t.Context(), id, 8080)
	if err != nil {
		t.Fatal(err)
	}
	converse(t, conn)
	defer conn.Close()
	for user, want := range map[string][]string{
		"ann":  {token, "ann", "server"},
		"bob":  {"bob", "server"},
		"tom":  {"rack-1", "server"},
		"olga": {token, "ann", "bob", "rack-1", "server"},
	} {
		var got []string
		peers := w.peers(t, user)
		for name, p := range peers {
			got = append(got, name)
			for _, link := range p.Links {
				if !slices.ContainsFunc(values(peers), func(o sdk.MeshPeer) bool { return o.ID == link }) {
					t.Errorf("%s learns from %s that %s exists", user, name, link)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %v, want %v", user, got, want)
		}
	}
	seen := w.peers(t, "ann")
	a := seen[token]
	if a.Kind != sdk.PeerAgent || !a.Connected || a.Path == sdk.PathUnknown || a.RxBytes == 0 || a.TxBytes == 0 || a.LastSeen == nil || a.LatencyMillis <= 0 {
		t.Errorf("the agent is shown as %+v", a)
	}
	for _, user := range []string{"ann", "olga"} {
		clients := w.peers(t, user)[token].Clients
		if len(clients) != 1 || clients[0].ID != laptop.Node.ID() || clients[0].Path == sdk.PathUnknown || clients[0].LatencyMillis <= 0 || clients[0].RxBytes == 0 {
			t.Errorf("%s sees the agent's clients as %+v", user, clients)
		}
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
