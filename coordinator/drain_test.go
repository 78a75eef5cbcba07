package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TestDrain checks that a server that drains sends its participants to another server, where their partners find them again, while servers
// stay connected to it and the subscriptions of others go on.
func TestDrain(t *testing.T) {
	bubble(t, 2, nil, func(t *testing.T, c *cluster) {
		a, cl := across(t, c)
		own := connect(t, c.servers[0], server(1), key(200))
		own.announce(1)
		own.expect(two, "welcome", "peer agent 1 #1")
		a.expect(two, "peer "+server(1).ID.String()+" #1")

		if err := c.servers[0].Drain(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		a.expect(two, "error unavailable")
		cl.expect(two, "lost agent 1")
		own.expect(two, "lost agent 1")
		if _, err := c.servers[0].Dialer(agent(2))(t.Context(), protocol.Hello{Version: protocol.Version, Key: key(102)}); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("a new connection: %v, want unavailable", err)
		}

		a = connect(t, c.servers[1], agent(1), key(100))
		a.expect(two, "welcome", "peer client 1 #1")
		cl.expect(two, "peer agent 1 #1")
	})
}

// TestDrainSpreads checks that connections end one after another over the given time.
func TestDrainSpreads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		for i := range 100 {
			connect(t, s, agent(i), key(uint64(1000+i))).expect(two, "welcome")
		}
		done := make(chan error, 1)
		go func() { done <- s.Drain(t.Context(), 10*time.Second) }()
		for _, want := range []int{90, 80, 70} {
			time.Sleep(time.Second - time.Millisecond)
			synctest.Wait()
			if got := s.Stats().Online; got != want {
				t.Errorf("%d agents are connected, want %d", got, want)
			}
			time.Sleep(time.Millisecond)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().Online; got != 0 {
			t.Errorf("%d agents are connected after the drain", got)
		}
	})
}

// TestDrainIsCut checks that a drain ends early with its context, and that those that are still connected stay until Close.
func TestDrainIsCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, coordinator.Options{})
		for i := range 10 {
			connect(t, s, agent(i), key(uint64(1000+i))).expect(two, "welcome")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second+time.Millisecond)
		defer cancel()
		if err := s.Drain(ctx, 10*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		synctest.Wait()
		if got := s.Stats().Online; got != 5 {
			t.Errorf("%d agents are connected, want 5", got)
		}
	})
}
