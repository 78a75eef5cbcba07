package coordinator

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Dialer connects participants of this process, as p, without a websocket. The same rules apply to them. It is for the
// client's Options.Dial.
func (s *Server) Dialer(p Principal) func(context.Context, protocol.Hello) (protocol.Conn, error) {
	return func(ctx context.Context, h protocol.Hello) (protocol.Conn, error) {
		h.At = time.Now()
		if err := s.precheck(p, h); err != nil {
			return nil, err
		}
		near, far := protocol.Pipe()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return nil, fault.New(fault.Unavailable, "the server is stopping")
		}
		s.serving.Go(func() {
			if err := s.Serve(context.WithoutCancel(ctx), far, p, h); err != nil {
				s.log.Debug("mesh connection ended", "peer", p.ID, "kind", string(p.Kind), "err", err)
			}
		})
		return near, nil
	}
}
