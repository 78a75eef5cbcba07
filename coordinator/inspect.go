package coordinator

import (
	"cmp"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// PeerInfo describes one participant, for lists.
type PeerInfo struct {
	Principal
	Addr           netip.Addr
	Online         bool
	Server         uuid.UUID // that it is, or was last, connected to; Nil means this one
	ConnectedSince time.Time // zero while not online
	LastSeen       time.Time
	Key            tailnet.PublicKey
	KeyFingerprint string // first 8 hex digits of the node key
	Region         int    // home relay, 0 while unknown
	Tunnels        int    // partners, connected or not
	Partners       []uuid.UUID
}

// Peers returns a snapshot of connected and lost participants, sorted by kind and name: of the given kinds, or of all.
func (s *Server) Peers(kinds ...protocol.Kind) []PeerInfo {
	s.mu.Lock()
	var list []PeerInfo
	for _, p := range s.peers {
		if p.state == absent || len(kinds) > 0 && !slices.Contains(kinds, p.principal.Kind) {
			continue
		}
		info := PeerInfo{
			Principal: p.principal, Addr: tailnet.Addr(p.principal.ID), Online: p.state == online,
			LastSeen: p.lastSeen, Key: p.key, KeyFingerprint: hex.EncodeToString(p.key[:4]), Tunnels: len(p.tunnels),
		}
		if p.session != nil {
			info.ConnectedSince, info.LastSeen = p.since, p.session.seen()
		}
		if p.remote != nil {
			info.Server = p.remote.server
			if p.state == online {
				info.ConnectedSince, info.LastSeen = p.since, time.Now() // its server would report otherwise
			}
		}
		for id := range p.tunnels {
			info.Partners = append(info.Partners, id)
		}
		if p.node != nil {
			info.Region = p.node.info.Region
		}
		list = append(list, info)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b PeerInfo) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
	return list
}

// Online reports whether a participant is connected.
func (s *Server) Online(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	return p != nil && p.state == online
}

// LastSeen returns when a participant last gave a sign of life over its connection to this server, or the zero time. A
// connected participant gives one at least every websock.DefaultPingInterval.
func (s *Server) LastSeen(id uuid.UUID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	switch {
	case p == nil || p.state == absent:
		return time.Time{}
	case p.session != nil:
		return p.session.seen()
	}
	return p.lastSeen
}

// Stats holds numbers for metrics. The counters only grow.
type Stats struct {
	Online, Lost, Tunnels int // Online and Lost count participants of this server, so that the sum over all servers counts each once

	ReadyTimeouts uint64 // introductions made without the destination's ready
	Refused       uint64 // subscriptions, at their start or by Recheck
	Rejected      uint64 // connections
	Dropped       uint64 // connections that took no messages
	Violations    uint64 // connections that broke the protocol
}

// Stats returns the current numbers.
func (s *Server) Stats() Stats {
	st := Stats{
		ReadyTimeouts: s.counters.readyTimeouts.Load(), Refused: s.counters.refused.Load(),
		Rejected: s.counters.rejected.Load(), Dropped: s.counters.dropped.Load(),
		Violations: s.counters.violations.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Tunnels = s.table.tunnels
	for _, p := range s.peers {
		if p.remote != nil {
			continue
		}
		switch p.state {
		case online:
			st.Online++
		case lost:
			st.Lost++
		}
	}
	return st
}

// Here reports whether a participant is connected to this server.
func (s *Server) Here(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	return p != nil && p.session != nil
}
