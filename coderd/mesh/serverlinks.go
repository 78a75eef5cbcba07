package mesh

import (
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// RegionID is the id of the relay region that the servers form.
const RegionID = tailnet.ServerRegion

// ID returns the id of this server process.
func (s *Service) ID() uuid.UUID { return s.opts.ID }

// ServerLinks returns what this server knows about its links to the others, sorted by server.
func (s *Service) ServerLinks() []sdk.ServerLink {
	byID := s.knownReplicas()
	for _, l := range s.coord.Links() {
		link := byID[l.Server]
		link.Connected, link.Since, link.Error = true, &l.Since, ""
		link.LatencyMillis, link.MessagesSent, link.MessagesReceived = millis(l.RTT), l.Sent, l.Received
		byID[l.Server] = link
	}
	for _, f := range s.relay.Following() {
		id, err := uuid.Parse(f.Name)
		link, ok := byID[id]
		if err != nil || !ok {
			continue
		}
		link.RelayConnected, link.RelayNodes, link.RelayError = !f.Since.IsZero(), f.Nodes, f.Err
		byID[id] = link
	}
	list := make([]sdk.ServerLink, 0, len(byID))
	for id, link := range byID {
		link.Server = id
		list = append(list, link)
	}
	slices.SortFunc(list, func(a, b sdk.ServerLink) int { return slices.Compare(a.Server[:], b.Server[:]) })
	return list
}

// knownReplicas returns the other servers.
func (s *Service) knownReplicas() map[uuid.UUID]sdk.ServerLink {
	s.replicas.Lock()
	defer s.replicas.Unlock()
	byID := make(map[uuid.UUID]sdk.ServerLink)
	for id, r := range s.replicas.byID {
		byID[id] = sdk.ServerLink{Error: r.err}
	}
	return byID
}

// relays returns a function that returns the server whose relay a node is connected to, or nil.
func (s *Service) relays() func(tailnet.PublicKey) *uuid.UUID {
	return func(node tailnet.PublicKey) *uuid.UUID {
		here, name := s.relay.Home(node)
		if here {
			return &s.opts.ID
		}
		if id, err := uuid.Parse(name); err == nil {
			return &id
		}
		return nil
	}
}

// Numbers are what a server reports to Prometheus about its part of the mesh. Sums over all servers count each
// participant once.
type Numbers struct {
	Online, Lost     int // participants that are, or were last, connected to this server
	RelayConnections int
	Relay            relay.Traffic
}

// Numbers returns the current numbers.
func (s *Service) Numbers() Numbers {
	st := s.coord.Stats()
	return Numbers{Online: st.Online, Lost: st.Lost, RelayConnections: s.relay.Connected(), Relay: s.relay.Traffic()}
}
