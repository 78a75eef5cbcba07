package connlog_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/agent/connlog"
)

// server stores reports, unless it is away.
type server struct {
	agentpbconnect.AgentServiceClient

	mu      sync.Mutex
	away    bool                          // guarded by mu
	reports []*agentpb.ConnectionsRequest // guarded by mu
}

func (s *server) Connections(_ context.Context, r *connect.Request[agentpb.ConnectionsRequest]) (*connect.Response[agentpb.ConnectionsResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
	}
	s.reports = append(s.reports, r.Msg)
	return connect.NewResponse(&agentpb.ConnectionsResponse{}), nil
}

func (s *server) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// take returns the connections that were reported since the last call, once all goroutines of the bubble wait.
func (s *server) take() (all []*agentpb.Connection) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		all = append(all, r.GetConnections()...)
	}
	s.reports = nil
	return all
}

// TestPorts checks that the connections to one port are one entry, which ends a while after the last of them, with the time of that, and that
// a server that was away learns of it.
func TestPorts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := connlog.New(func(netip.Addr) (agentpb.Path_Way, string) { return agentpb.Path_WAY_DIRECT, "192.0.2.1:41641" }, nil)
		defer log.Close()
		s := &server{}
		run := func() (stop func() error) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- log.Run(ctx, s, slog.New(slog.DiscardHandler)) }()
			return func() error { cancel(); return <-ended }
		}
		stop := run()
		peer := netip.MustParseAddr("fd7a:115c:a1e0::1")
		open := func(port uint16) net.Conn {
			conn, other := net.Pipe()
			t.Cleanup(func() { other.Close() })
			return log.Forwarded(conn, peer, port)
		}
		first := open(8080)
		time.Sleep(time.Minute) // of the bubble's clock
		if all := s.take(); len(all) != 1 || all[0].GetPort() != 8080 || all[0].GetDisconnectedAt() != nil || all[0].GetEndpoint() != "192.0.2.1:41641" {
			t.Fatalf("an open port: %v", all)
		}
		second := open(8080)
		first.Close()
		time.Sleep(time.Minute)
		if all := s.take(); len(all) != 0 {
			t.Errorf("one of two connections has ended: %v", all)
		}
		s.setAway(true)
		second.Close()
		at := time.Now()
		synctest.Wait()
		time.Sleep(time.Minute)
		if err := stop(); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("a report while the server is away: %v", err)
		}
		s.setAway(false)
		stop = run()
		time.Sleep(time.Minute)
		if all := s.take(); len(all) != 1 || !all[0].GetDisconnectedAt().AsTime().Equal(at) || all[0].GetReason() != "closed by the workspace" {
			t.Errorf("the port's end: %v, want %s", all, at)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestRoundTrips checks that the round trip to a client is reported with its visit, again when the median has changed,
// and not for a client that does not answer.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, silent := netip.MustParseAddr("fd7a:115c:a1e0::1"), netip.MustParseAddr("fd7a:115c:a1e0::2")
		var trip, asked atomic.Int64
		trip.Store(int64(10 * time.Millisecond))
		log := connlog.New(func(netip.Addr) (agentpb.Path_Way, string) { return agentpb.Path_WAY_RELAY, "" },
			func(_ context.Context, clients map[netip.Addr]bool) map[netip.Addr]time.Duration {
				if asked.Add(1); !clients[near] {
					t.Errorf("asked about %v", clients)
				}
				return map[netip.Addr]time.Duration{near: time.Duration(trip.Load())}
			})
		defer log.Close()
		s := &server{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- log.Run(ctx, s, slog.New(slog.DiscardHandler)) }()
		defer func() { cancel(); <-ended }()
		for i, peer := range []netip.Addr{near, silent} {
			conn, other := net.Pipe()
			t.Cleanup(func() { other.Close() })
			log.Forwarded(conn, peer, uint16(8080+i))
		}
		time.Sleep(time.Minute)
		got := map[uint32]int64{}
		for _, c := range s.take() {
			got[c.GetPort()] = c.GetLatencyUs()
		}
		if len(got) != 2 || got[8080] != 10_000 || got[8081] != 0 {
			t.Errorf("round trips by port: %v", got)
		}
		time.Sleep(10 * time.Minute)
		if all := s.take(); len(all) != 0 {
			t.Errorf("the same round trips again: %v", all)
		}
		trip.Store(int64(100 * time.Millisecond))
		time.Sleep(30 * time.Minute) // as many measurements as before, and more
		all := s.take()
		if len(all) == 0 || all[len(all)-1].GetLatencyUs() != 100_000 {
			t.Errorf("another round trip: %v", all)
		}
		if asked.Load() < 5 {
			t.Errorf("measured %d times", asked.Load())
		}
	})
}

// TestReportsDoNotWaitForRoundTrips checks that a visit is reported at once, also while a client does not answer, and that a
// second report has the round trip to one that does.
func TestReportsDoNotWaitForRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, silent := netip.MustParseAddr("fd7a:115c:a1e0::1"), netip.MustParseAddr("fd7a:115c:a1e0::2")
		log := connlog.New(func(netip.Addr) (agentpb.Path_Way, string) { return agentpb.Path_WAY_RELAY, "" },
			func(ctx context.Context, clients map[netip.Addr]bool) map[netip.Addr]time.Duration {
				if clients[silent] {
					<-ctx.Done()
				}
				if !clients[near] || errors.Is(ctx.Err(), context.Canceled) {
					return nil
				}
				return map[netip.Addr]time.Duration{near: 10 * time.Millisecond}
			})
		defer log.Close()
		s := &server{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- log.Run(ctx, s, slog.New(slog.DiscardHandler)) }()
		open := func(peer netip.Addr, port uint16) {
			conn, other := net.Pipe()
			t.Cleanup(func() { other.Close() })
			log.Forwarded(conn, peer, port)
		}
		synctest.Wait()
		time.Sleep(time.Minute) // of the bubble's clock
		s.take()
		want := func(after time.Duration, ports ...int64) {
			t.Helper()
			time.Sleep(after)
			all := s.take()
			for _, c := range all {
				if len(ports) == 0 || c.GetDisconnectedAt() != nil || int64(c.GetPort())+c.GetLatencyUs() != ports[0] {
					t.Fatalf("got %v, want ports and round trips %d", all, ports)
				}
				ports = ports[1:]
			}
			if len(ports) > 0 {
				t.Fatalf("got %v, want also ports and round trips %d", all, ports)
			}
		}
		const gather = time.Second
		open(silent, 8080)
		want(gather, 8080)
		open(near, 8081) // while the first is measured
		want(gather, 8081)
		want(gather, 8081+10_000)
		want(time.Minute)
		open(silent, 8082) // its measurement does not outlive the connection to the server
		want(gather, 8082)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestRegions checks that connections of region proxies, which the server records, are not in the log.
func TestRegions(t *testing.T) {
	t.Parallel()
	log := connlog.New(nil, nil)
	conn, other := net.Pipe()
	defer other.Close()
	defer conn.Close()
	visitor := from{conn, connlog.RegionAddr{Addr: conn.RemoteAddr()}}
	if got := log.Session(visitor); got != net.Conn(visitor) {
		t.Errorf("a visitor's connection is %T", got)
	}
}

type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }
