package sshd

import "time"

// killDelay is how long programs may take to end after a hangup when the server closes.
const killDelay = 5 * time.Second

// reap waits for a program on a goroutine of the server: a program that ignores the hangup outlives its connection.
// Close kills the programs that are left.
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
