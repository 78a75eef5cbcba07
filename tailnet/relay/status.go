package relay

import (
	"expvar"
	"slices"
	"strings"
	"time"

	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/tailnet"
)

// following is the state of one call of Follow. It is guarded by Server.mu.
type following struct {
	since time.Time // of the connection; zero without one
	err   string    // why there is none; "" before the first attempt has ended
	nodes map[key.NodePublic]bool
}

// FollowStatus describes how this relay follows another.
type FollowStatus struct {
	Name  string    // as in Follow
	Since time.Time // of the connection; zero without one
	Err   string    // why there is none; "" before the first attempt has ended
	Nodes int       // connected to the other relay
}

// Following returns the relays that this one follows, sorted by name.
func (s *Server) Following() []FollowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]FollowStatus, 0, len(s.following))
	for name, f := range s.following {
		list = append(list, FollowStatus{name, f.since, f.err, len(f.nodes)})
	}
	slices.SortFunc(list, func(a, b FollowStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Home returns where a node is connected: here, or at the relay that is followed by this name. Both are zero for a node
// that is not connected to any of the relays that this one knows.
func (s *Server) Home(node tailnet.PublicKey) (here bool, name string) {
	k := nodeKey(node)
	if s.monitor.connectedNow(k) {
		return true, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.following {
		if f.nodes[k] {
			return false, name
		}
	}
	return false, ""
}

// Traffic counts what a relay has carried since it started.
type Traffic struct {
	SentBytes, ReceivedBytes  int64 // to and from nodes
	ForwardedOut, ForwardedIn int64 // packets to and from other relays
}

// Traffic returns what this relay has carried.
func (s *Server) Traffic() Traffic {
	m, ok := s.relay.ExpVar(false).(interface{ Get(string) expvar.Var })
	if !ok {
		return Traffic{}
	}
	count := func(name string) int64 {
		if v, ok := m.Get(name).(*expvar.Int); ok {
			return v.Value()
		}
		return 0
	}
	return Traffic{
		SentBytes: count("bytes_sent"), ReceivedBytes: count("bytes_received"),
		ForwardedOut: count("packets_forwarded_out"), ForwardedIn: count("packets_forwarded_in"),
	}
}

// beginFollowing returns what Following reports about a relay, and a function that ends the report.
func (s *Server) beginFollowing(name string) (f *following, end func()) {
	f = &following{nodes: make(map[key.NodePublic]bool)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following[name] = f
	return f, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.following[name] == f {
			delete(s.following, name)
		}
	}
}
