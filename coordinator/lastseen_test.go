package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
)

// TestLastSeen: both ends of a connection know since when it stands and when the other end was last seen. For the
// server, that is the end of the connection once it is lost.
func TestLastSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		if !s.LastSeen(agent(1).ID).IsZero() {
			t.Error("saw an agent that never joined")
		}
		join(t, protocol.KindServer, key(300), client.Options{Dial: s.Dialer(server(1))})
		synctest.Wait()
		began := time.Now()
		d := &door{p: agent(1), server: s}
		a := join(t, protocol.KindAgent, key(100), client.Options{Dial: d.dial})
		synctest.Wait()
		time.Sleep(time.Minute)
		since, last := a.ServerLastSeen(server(1).ID)
		if at := s.LastSeen(agent(1).ID); !since.Equal(began) || !last.Equal(time.Now()) || !at.Equal(time.Now()) {
			t.Errorf("connected: the agent saw it since %v until %v, the server at %v", since, last, at)
		}
		if since, last := a.ServerLastSeen(server(2).ID); !since.IsZero() || !last.IsZero() {
			t.Errorf("another server: seen since %v until %v", since, last)
		}
		lost := time.Now()
		d.set(nil, nil)
		d.cut()
		synctest.Wait()
		time.Sleep(time.Minute)
		since, last = a.ServerLastSeen(server(1).ID)
		if at := s.LastSeen(agent(1).ID); !since.IsZero() || !last.IsZero() || !at.Equal(lost) {
			t.Errorf("lost at %v: the agent saw it since %v until %v, the server at %v", lost, since, last, at)
		}
	})
}
