package netio_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// resetter is a pipe that notes whether it was reset.
type resetter struct {
	net.Conn
	reset atomic.Bool
}

func (r *resetter) Abort() {
	r.reset.Store(true)
	r.Close()
}

// An accepted connection is reset when what it leads to may no longer be used, and not before.
func TestCarry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		program, near := net.Pipe()
		far, agent := net.Pipe()
		accepted := &resetter{Conn: near}
		go netio.Carry(ctx, accepted, far)
		go func() { _, _ = program.Write([]byte("x")) }()
		b := make([]byte, 1)
		if _, err := agent.Read(b); err != nil || b[0] != 'x' {
			t.Fatalf("%q, %v", b, err)
		}
		synctest.Wait()
		if accepted.reset.Load() {
			t.Error("reset while both ends are there")
		}
		cancel()
		synctest.Wait()
		if _, err := agent.Read(b); err == nil || !accepted.reset.Load() {
			t.Errorf("ctx has ended: %v, reset %v", err, accepted.reset.Load())
		}
	})
}

// A flow lasts as long as datagrams pass, in either direction.
func TestCarryDatagrams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		program, near := net.Pipe()
		far, agent := net.Pipe()
		ended := make(chan time.Time, 1)
		go func() {
			netio.CarryDatagrams(t.Context(), near, far)
			ended <- time.Now()
		}()
		b := make([]byte, 16)
		for i := range 3 {
			time.Sleep(netio.DatagramIdle - time.Second)
			from, to := program, agent
			if i%2 == 1 {
				from, to = agent, program
			}
			go func() { _, _ = from.Write([]byte("one")) }()
			if n, err := to.Read(b); err != nil || string(b[:n]) != "one" {
				t.Fatalf("datagram %d: %q, %v", i, b[:n], err)
			}
		}
		last := time.Now()
		if silent := (<-ended).Sub(last); silent != netio.DatagramIdle {
			t.Errorf("ended after %v of silence", silent)
		}
	})
}
