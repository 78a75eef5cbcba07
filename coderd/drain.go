package coderd

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/health"
	"github.com/codermesh/codermesh/v2/internal/backoff"
)

// drainTime is how long the participants of the mesh take to move to other servers, one after another: a thousand
// agents come at the rate of three per ten milliseconds.
const drainTime = 3 * time.Second

// health answers load balancers: 200 while they may send requests here, also without a database, and 503 once the
// server is stopping, or while it is cut off from the others, which serve instead. It goes on serving what reaches it.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "OK"
	switch {
	case s.draining.Load():
		text = health.Draining
	case s.Replicas.CutOff():
		text = health.CutOff
	}
	if text != "OK" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, err := io.WriteString(w, text)
	return err
}

// drain lets the server's work end before the server does: /healthz answers 503, built-in provisioners finish their
// jobs, and a load balancer has DrainDelay to notice. Then agents, clients and external provisioners move to the other
// servers. When ctx ends, jobs are interrupted, and everyone is sent away at once by Stop. A server without others only
// finishes its jobs.
func (s *Server) drain(ctx context.Context) error {
	s.draining.Store(true)
	others := len(s.Mesh.Linked()) > 0
	var noticed sync.WaitGroup
	if others {
		s.log.Info("draining", "duration", s.opts.DrainDelay)
		noticed.Go(func() { _ = backoff.Sleep(ctx, s.opts.DrainDelay, nil) }) // returns early if ctx ends
	}
	if end, bounded := ctx.Deadline(); bounded && len(s.builtIn) > 0 {
		if err := s.Jobs.Stopping(ctx, end); err != nil {
			s.log.Warn("cannot tell who waits for builds that the server is stopping", "err", err)
		}
	}
	err := s.stopBuiltIn(ctx)
	noticed.Wait()
	if !others {
		return err
	}
	s.http.SetKeepAlivesEnabled(false) // the balancer must not send its next request on a connection to this server
	if left := s.Mesh.Drain(ctx, drainTime); left != nil {
		s.log.Warn("not everyone has moved to another server before the deadline", "err", left)
	}
	return err
}
