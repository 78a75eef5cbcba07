package coordinator

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// Drain sends the participants to other servers: it refuses new ones and ends the connections one after another, in
// random order, evenly spread over the given time, so that the other servers do not have to greet all at once. Servers
// stay, and so do the links and all tunnels. Drain returns when the last connection has ended, or with ctx's error.
// Call Close afterwards.
func (s *Server) Drain(ctx context.Context, over time.Duration) error {
	s.mu.Lock()
	s.draining = true
	leaving := make([]*session, 0, len(s.sessions))
	for x := range s.sessions {
		if x.principal.Kind != protocol.KindServer {
			leaving = append(leaving, x)
		}
	}
	s.mu.Unlock()
	rand.Shuffle(len(leaving), func(i, j int) { leaving[i], leaving[j] = leaving[j], leaving[i] })
	begin := time.Now()
	for i, x := range leaving {
		pause := time.Until(begin.Add(over * time.Duration(i) / time.Duration(len(leaving))))
		if err := backoff.Sleep(ctx, pause, nil); err != nil {
			return err
		}
		s.mu.Lock()
		x.end(stopping(), websock.StatusGoingAway)
		s.mu.Unlock()
	}
	for _, x := range leaving {
		select {
		case <-x.ctx.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stopping is the last message to participants that may try again at once, at another server.
func stopping() protocol.ErrorMessage {
	return protocol.ErrorMessage{Code: fault.Unavailable, Message: "the server is stopping"}
}
