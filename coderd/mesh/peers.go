package mesh

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// pingBudget bounds how long a list waits for latency measurements.
	pingBudget = 800 * time.Millisecond
	// maxQuestions is the most agents that are asked for one list.
	maxQuestions = 64
)

func (s *Service) listPeers(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	// The list shows what the user's clients do in every workspace.
	if err := actor.May(rbac.Read, rbac.Of(rbac.Agent, actor.UserID)); err != nil {
		return err
	}
	peers, err := s.visible(r.Context(), actor)
	if err != nil {
		return err
	}
	listed := make(map[uuid.UUID]protocol.Kind, len(peers))
	for _, p := range peers {
		listed[p.ID] = p.Kind
	}
	found := s.measure(r.Context(), peers, listed)
	out := sdk.MeshPeersResponse{ServerID: s.opts.ID, Peers: make([]sdk.MeshPeer, len(peers))}
	for _, l := range s.ServerLinks() {
		out.ServerLinks = append(out.ServerLinks, sdk.MeshServerLink{
			ServerID: l.Server, Connected: l.Connected, LatencyMillis: l.LatencyMillis,
		})
	}
	relayOf := s.relays()
	for i, p := range peers {
		shown := sdk.MeshPeer{
			ID: p.ID, Kind: sdk.PeerKind(p.Kind), Name: p.Name, Path: sdk.PathUnknown, Connected: p.Online,
			ServerID: cmp.Or(p.Server, s.opts.ID), RelayServerID: relayOf(p.Key),
		}
		if !p.LastSeen.IsZero() {
			shown.LastSeen = &p.LastSeen
		}
		if k, ok := found.own[p.ID]; ok {
			shown.Path, shown.RxBytes, shown.TxBytes, shown.LatencyMillis = shownPath(k.Path), k.Rx, k.Tx, millis(k.Latency)
		}
		for _, c := range found.of[p.ID] {
			shown.Clients = append(shown.Clients, sdk.MeshClient{
				ID: c.ID, Path: shownPath(c.Path), LatencyMillis: millis(c.Latency), RxBytes: c.Rx, TxBytes: c.Tx,
			})
		}
		for _, id := range p.Partners {
			if listed[id] != "" {
				shown.Links = append(shown.Links, id)
			}
		}
		slices.SortFunc(shown.Links, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		out.Peers[i] = shown
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// visible returns the peers that an actor may see: the servers, its own clients, the agents that it may connect to, and
// the provisioners that it may list. An owner of the deployment sees all peers.
func (s *Service) visible(ctx context.Context, actor rbac.Actor) ([]coordinator.PeerInfo, error) {
	peers := s.coord.Peers()
	if actor.Sees(rbac.Mesh, uuid.Nil) {
		return peers, nil
	}
	var agents []uuid.UUID
	for _, p := range peers {
		if p.Kind == protocol.KindAgent {
			agents = append(agents, p.ID)
		}
	}
	reachable, err := s.agents.Reachable(ctx, actor.UserID, agents...)
	if err != nil {
		return nil, err
	}
	reaches := make(map[uuid.UUID]bool, len(reachable))
	for _, id := range reachable {
		reaches[id] = true
	}
	return slices.DeleteFunc(peers, func(p coordinator.PeerInfo) bool {
		switch p.Kind {
		case protocol.KindServer:
			return false
		case protocol.KindClient:
			return p.Subject != actor.UserID
		case protocol.KindAgent:
			return !reaches[p.ID]
		case protocol.KindProvisioner:
			known, ok := provisionerOf(p.Principal)
			return !ok || actor.May(rbac.Read, rbac.Of(rbac.ProvisionerDaemon, known.Owner)) != nil
		}
		return true
	}), nil
}

// paths holds the known paths to the listed peers: from this server to each of them, and from agents to their clients.
type paths struct {
	own map[uuid.UUID]tailnet.PeerStatus
	of  map[uuid.UUID][]tailnet.PeerStatus // by agent
}

// measure collects the paths within pingBudget. It asks the agents that have a tunnel with a client.
func (s *Service) measure(ctx context.Context, peers []coordinator.PeerInfo, listed map[uuid.UUID]protocol.Kind) paths {
	found := paths{own: map[uuid.UUID]tailnet.PeerStatus{}, of: map[uuid.UUID][]tailnet.PeerStatus{}}
	select {
	case <-s.joined:
	default:
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, pingBudget)
	defer cancel()
	isClient := func(id uuid.UUID) bool { return listed[id] == protocol.KindClient }
	var asked sync.WaitGroup
	var mu sync.Mutex // guards found.of
	questions := 0
	for _, p := range peers {
		if p.Kind != protocol.KindAgent || !p.Online || !slices.ContainsFunc(p.Partners, isClient) {
			continue
		}
		if questions++; questions > maxQuestions {
			break
		}
		asked.Go(func() {
			all, err := s.agents.Paths(ctx, p.ID)
			if err != nil {
				s.opts.Logger.DebugContext(ctx, "cannot get agent's paths", "agent", p.ID, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found.of[p.ID] = slices.DeleteFunc(all,
				func(c tailnet.PeerStatus) bool { return !isClient(c.ID) || !slices.Contains(p.Partners, c.ID) })
		})
	}
	for _, p := range s.node.Measure(ctx, func(id uuid.UUID) bool { return listed[id] != "" }) {
		found.own[p.ID] = p
	}
	asked.Wait()
	return found
}

func shownPath(path tailnet.Path) sdk.PeerPath {
	switch path {
	case tailnet.PathDirect:
		return sdk.PathDirect
	case tailnet.PathRelay:
		return sdk.PathRelayed
	}
	return sdk.PathUnknown
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
