package proc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Children starts processes on behalf of a process that also reaps every orphan. Waiting for any child steals the exit
// statuses that os/exec waits for, so such a process must start all its children with Start. Make one per process, and
// close it.
type Children struct {
	signals chan os.Signal
	done    chan struct{}

	mu      sync.Mutex // guards waiting; held while one is started, so that its end is not missed
	waiting map[int]chan syscall.WaitStatus
}

// NewChildren starts reaping. It makes this process inherit the orphans of its descendants, even if it is not the first
// process of its PID namespace.
func NewChildren() (*Children, error) {
	if os.Getpid() != 1 {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become the reaper of orphans: %w", err)
		}
	}
	c := &Children{signals: make(chan os.Signal, 1), done: make(chan struct{}),
		waiting: make(map[int]chan syscall.WaitStatus)}
	signal.Notify(c.signals, syscall.SIGCHLD)
	go func() {
		defer close(c.done)
		for range c.signals {
			c.reap()
		}
	}()
	return c, nil
}

// Start starts a process, as terminal.Launch describes. exited receives one value.
func (c *Children) Start(
	path string, args []string, attr *os.ProcAttr,
) (pid int, exited <-chan syscall.WaitStatus, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := os.StartProcess(path, args, attr)
	if err != nil {
		return 0, nil, err
	}
	pid = p.Pid // Release forgets it
	if err := p.Release(); err != nil {
		return 0, nil, fmt.Errorf("release process: %w", err)
	}
	status := make(chan syscall.WaitStatus, 1)
	c.waiting[pid] = status
	return pid, status, nil
}

// reap reaps all children that have ended. One signal may stand for several.
func (c *Children) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		c.mu.Lock()
		if exited := c.waiting[pid]; exited != nil {
			delete(c.waiting, pid)
			exited <- status
		}
		c.mu.Unlock()
	}
}

// Close stops reaping.
func (c *Children) Close() {
	signal.Stop(c.signals)
	close(c.signals)
	<-c.done
}
