package mesh

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/tailnet"
)

const (
	// pingBudget bounds how long a list waits for measurements of latency.
	pingBudget = 250 * time.Millisecond
	// maxPings is how many peers are measured for one list. A longer list goes without.
	maxPings = 64
)

func (s *Service) listPeers(w http.ResponseWriter, r *http.Request) error {
	peers, err := s.visible(r.Context(), httpapi.ActorFrom(r.Context()))
	if err != nil {
		return err
	}
	listed := make(map[uuid.UUID]bool, len(peers))
	for _, p := range peers {
		listed[p.ID] = true
	}
	known := s.known(r.Context(), listed)
	out := sdk.MeshPeersResponse{Peers: make([]sdk.MeshPeer, len(peers))}
	for i, p := range peers {
		shown := sdk.MeshPeer{ID: p.ID, Kind: sdk.PeerKind(p.Kind), Name: p.Name, Path: sdk.PathUnknown, Connected: p.Online}
		if !p.LastSeen.IsZero() {
			shown.LastSeen = &p.LastSeen
		}
		if k, ok := known[p.ID]; ok {
			shown.Path, shown.RxBytes, shown.TxBytes = k.path, k.rx, k.tx
			shown.LatencyMillis = float64(k.latency.Microseconds()) / 1000
		}
		for _, id := range p.Partners {
			if listed[id] {
				shown.Links = append(shown.Links, id)
			}
		}
		slices.SortFunc(shown.Links, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		out.Peers[i] = shown
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// visible is whom of the mesh an actor may see: the servers, its own clients and agents, the provisioners that it may list; an
// owner of the deployment everybody.
func (s *Service) visible(ctx context.Context, actor rbac.Actor) ([]coordinator.PeerInfo, error) {
	peers := s.coord.Peers()
	if actor.Sees(rbac.Mesh) {
		return peers, nil
	}
	var agents []uuid.UUID
	for _, p := range peers {
		if p.Kind == coordinator.KindAgent {
			agents = append(agents, p.ID)
		}
	}
	owners, err := s.opts.AgentOwners(ctx, agents...)
	if err != nil {
		return nil, err
	}
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	return slices.DeleteFunc(peers, func(p coordinator.PeerInfo) bool {
		switch p.Kind {
		case coordinator.KindServer:
			return false
		case coordinator.KindClient:
			return p.Subject != actor.UserID
		case coordinator.KindAgent:
			return owners[p.ID] != actor.UserID
		case coordinator.KindProvisioner:
			return actor.May(rbac.Read, rbac.Of(rbac.ProvisionerDaemon, s.provisioners.byID[p.ID].Owner)) != nil
		}
		return true
	}), nil
}

// traffic is what this server's node knows of a peer.
type traffic struct {
	path    sdk.PeerPath
	rx, tx  int64
	latency time.Duration // 0: not measured
}

// known is what the node knows of those listed. It measures the latency of the ones with a path, within a budget.
func (s *Service) known(ctx context.Context, listed map[uuid.UUID]bool) map[uuid.UUID]traffic {
	select {
	case <-s.joined:
	default:
		return nil
	}
	out := map[uuid.UUID]traffic{}
	var measure []uuid.UUID
	for _, p := range s.node.Status().Peers {
		if !listed[p.ID] {
			continue
		}
		path := sdk.PathUnknown
		switch p.Path {
		case tailnet.PathDirect:
			path = sdk.PathDirect
		case tailnet.PathRelay:
			path = sdk.PathRelayed
		}
		out[p.ID] = traffic{path: path, rx: p.Rx, tx: p.Tx}
		if path != sdk.PathUnknown {
			measure = append(measure, p.ID)
		}
	}
	if len(measure) > maxPings {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, pingBudget)
	defer cancel()
	latencies := make([]time.Duration, len(measure))
	var pings sync.WaitGroup
	for i, id := range measure {
		pings.Go(func() {
			if pong, err := s.node.Ping(ctx, id); err == nil { // an optional measurement: without it the latency is unknown
				latencies[i] = cmp.Or(pong.Latency, time.Microsecond)
			}
		})
	}
	pings.Wait()
	for i, id := range measure {
		t := out[id]
		t.latency = latencies[i]
		out[id] = t
	}
	return out
}
