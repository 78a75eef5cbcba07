package sshd

import (
	"context"
	"errors"
	"time"
)

// killDelay is how long programs may take to end after a hangup when the server closes.
const killDelay = 5 * time.Second

// reap waits for a program on a goroutine of the server: a program that ignores the hangup outlives its connection. Close
// kills what is left.
func (s *Server) reap(p *process) {
	exited := make(chan struct{})
	s.processes.Go(func() {
		p.wait()
		close(exited)
	})
	s.processes.Go(func() {
		select {
		case <-exited:
			return
		case <-s.run.Done():
		}
		p.hangUp()
		timer := time.NewTimer(killDelay)
		defer timer.Stop()
		select {
		case <-exited:
		case <-timer.C:
			p.kill()
		}
	})
}

// environment asks for the workspace's environment until the client is gone or the server closes.
func (s *Server) environment(gone <-chan struct{}) (Environment, error) {
	ctx, cancel := context.WithTimeoutCause(s.run, environmentTimeout, errNoEnvironment)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-gone:
			cancel()
		case <-done:
		}
	}()
	env, err := s.opts.Environment(ctx)
	if err != nil && context.Cause(ctx) == errNoEnvironment {
		return env, errNoEnvironment
	}
	return env, err
}

// environmentTimeout is how long a session waits for the workspace to learn what it is.
const environmentTimeout = 30 * time.Second

var errNoEnvironment = errors.New("the workspace has not heard from its server yet; try again in a moment")
