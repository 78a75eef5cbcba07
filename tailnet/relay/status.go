package relay

import (
	"expvar"
	"net/url"
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
	URL   string
	Since time.Time // of the connection; zero without one
	Err   string    // why there is none; "" before the first attempt has ended
	Nodes int       // connected to the other relay
}

// Following returns the relays that this one follows, sorted by URL.
func (s *Server) Following() []FollowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]FollowStatus, 0, len(s.following))
	for u, f := range s.following {
		list = append(list, FollowStatus{u, f.since, f.err, len(f.nodes)})
	}
	slices.SortFunc(list, func(a, b FollowStatus) int { return strings.Compare(a.URL, b.URL) })
	return list
}

// Home returns where a node is connected: here, or at the relay with this URL. Both are zero for a node that is not connected to any of
// the relays that this one knows.
func (s *Server) Home(node tailnet.PublicKey) (here bool, base string) {
	k := nodeKey(node)
	if s.monitor.connectedNow(k) {
		return true, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for u, f := range s.following {
		if f.nodes[k] {
			return false, u
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
func (s *Server) beginFollowing(base *url.URL) (f *following, end func()) {
	f = &following{nodes: make(map[key.NodePublic]bool)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following[base.String()] = f
	return f, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.following[base.String()] == f {
			delete(s.following, base.String())
		}
	}
}
