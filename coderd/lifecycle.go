package coderd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

// Start serves. It returns when requests are answered; built-in provisioners join in the background.
func (s *Server) Start(ctx context.Context) error {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.Jobs.Start(ctx); err != nil {
		return err
	}
	context.AfterFunc(ctx, s.Keys.OnDeleted(func(id uuid.UUID) { s.keyDeleted(ctx, id) }))
	s.running.Go(func() { s.revocations.run(ctx) })
	s.running.Go(func() { s.activity.run(ctx) })
	// The last connections are recorded while the server stops.
	sessions, endSessions := context.WithCancel(context.WithoutCancel(ctx))
	s.endSessions = endSessions
	s.running.Go(func() { s.Connections.Run(sessions) })
	if s.opts.AuditStream != nil {
		follow, err := s.Audit.Follow(ctx, s.PubSub, s.opts.AuditStream, s.log)
		if err != nil {
			return err
		}
		s.running.Go(follow)
	}
	s.Agents.Start()
	s.Workspaces.Start()
	s.Retention.Start()
	s.Notifications.Start()
	s.Webhooks.Start()
	s.SignIn.Start()
	rpc := http.NewServeMux()
	rpc.Handle(s.Agents.RPCHandler(s.Mesh.CallingAgent))
	rpc.Handle(s.Jobs.RPCHandler(meshDaemons{s.Mesh}.calling))
	if err := s.Mesh.Start(rpc); err != nil {
		return err
	}
	// Before /healthz answers: a device begins a connection when the server is said to be there.
	if err := s.listenWireGuard(ctx); err != nil {
		return err
	}
	for _, listener := range []net.Listener{s.opts.HTTP, s.opts.TLS, s.local} {
		if listener == nil {
			continue
		}
		s.running.Go(func() {
			if err := s.http.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.fail(fmt.Errorf("serve %s: %w", listener.Addr(), err))
			}
		})
	}
	s.serveSSH()
	if err := s.Replicas.Start(ctx); err != nil {
		return err
	}
	s.Regions.Start(ctx)
	s.running.Go(func() {
		s.reencrypt(ctx)
	})
	if missing := s.binaries.Missing(); len(missing) > 0 && s.opts.ReleaseMirror == nil {
		s.log.Info("this build has no programs for some systems: build with SLIM=all, or set --release-mirror-url",
			"what", strings.Join(missing, " "))
	}
	s.running.Go(func() {
		if err := s.binaries.Prepare(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("cannot unpack binaries for workspaces", "err", err)
		}
	})
	return s.startBuiltIn()
}

// reencrypt brings everything under the first key, for as long as it takes.
func (s *Server) reencrypt(ctx context.Context) {
	retry := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for {
		_, err := s.opts.States.Rotate(ctx, s.opts.DB, s.log)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error("cannot encrypt with the first key, trying again", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// keyDeleted cuts the daemons of a deleted key, for as long as it takes.
func (s *Server) keyDeleted(ctx context.Context, id uuid.UUID) {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		err := s.Mesh.KeyDeleted(ctx, id)
		if err == nil || ctx.Err() != nil {
			return
		}
		s.log.Error("cannot disconnect provisioners of a deleted key, trying again", "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // one is enough
	}
}

// Failed receives an error when the server cannot go on.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop ends the server. First it drains: load balancers are told, built-in provisioners finish their jobs until ctx
// ends, then interrupt them, and participants of the mesh move to the other servers. It waits for everything that Start
// began and works after a Start that failed.
func (s *Server) Stop(ctx context.Context) error {
	errs := []error{s.drain(ctx)}
	if s.cancel != nil {
		s.cancel()
	}
	s.Regions.Stop()
	s.Replicas.Stop()
	s.Events.Stop()
	s.Apps.Stop()
	s.SSHGateway.Stop()
	s.WireGuard.Stop()
	s.Agents.Stop()
	s.Workspaces.Stop()
	s.Retention.Stop()
	s.Notifications.Stop()
	s.Webhooks.Stop()
	s.Jobs.Stop()
	shut := s.shutHTTP(ctx)
	errs = append(errs, s.closeMesh())
	errs = append(errs, <-shut)
	s.SignIn.Stop() // no request can give it work any more
	if s.endSessions != nil {
		s.endSessions()
	}
	s.running.Wait()
	s.ExternalAuth.Close()
	s.PubSub.Close()
	return errors.Join(errs...)
}

// shutHTTP closes the listeners and then returns, before the mesh ends: agents that lose their connection try again at
// once, and a thousand of them would keep the server busy with refusals. Requests that are being answered get a moment,
// after which shut receives the result; websockets and the relay's connections are ended by their owners.
func (s *Server) shutHTTP(ctx context.Context) (shut <-chan error) {
	done, closed := make(chan error, 1), make(chan struct{})
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(closed) })) // called after the listeners were closed
	go func() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err := s.http.Shutdown(soon)
		if err != nil {
			err = s.http.Close()
		}
		done <- err
	}()
	<-closed
	return done
}

// meshDeadline bounds leaving the mesh, which waits for engines that are not ours.
const meshDeadline = 15 * time.Second

// closeMesh leaves the mesh, or says that it could not: the process then ends with what is left of it.
func (s *Server) closeMesh() error {
	closed := make(chan error, 1)
	go func() { closed <- s.Mesh.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(meshDeadline):
		return fmt.Errorf("leave the mesh: not done after %s", meshDeadline)
	}
}
