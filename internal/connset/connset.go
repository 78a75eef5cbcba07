// Package connset keeps track of the open connections of a server. It limits their number, and closes them all in the
// end.
package connset

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

// Options configure a Set.
type Options struct {
	Limit int // maximum number of connections at once; 0 means no limit
	// Refused is called with a connection above Limit, which is closed when Refused returns. If nil the connection is
	// just closed.
	Refused func(net.Conn)
}

// Set is a set of connections. Make one with New. It is safe for concurrent use.
type Set struct {
	opts   Options
	life   context.Context // ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex // guards the fields below
	closed    bool
	conns     map[net.Conn]struct{}
	listeners map[net.Listener]struct{}
	wg        sync.WaitGroup // counts connections and listeners; grows only while not closed
}

// New returns an empty Set. Close it.
func New(opts Options) *Set {
	s := &Set{opts: opts, conns: make(map[net.Conn]struct{}), listeners: make(map[net.Listener]struct{})}
	s.life, s.cancel = context.WithCancel(context.Background())
	return s
}

// Do adds conn, calls serve, and closes and removes conn. It returns false without a call, with conn closed, if the set
// is full or closed. serve must return when conn is closed. Do blocks as long as serve does.
func (s *Set) Do(conn net.Conn, serve func()) bool {
	if !s.add(conn) {
		return false
	}
	defer s.remove(conn)
	serve()
	return true
}

// Serve accepts connections from l, and serves each on a goroutine as Do would, until l or the set is closed: then it
// closes l and returns nil. It keeps trying while the process has no file descriptors left. It blocks; Close waits for
// it.
func (s *Set) Serve(l net.Listener, serve func(net.Conn)) error {
	defer l.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		s.wg.Done()
	}()
	pause := backoff.Backoff{Min: 5 * time.Millisecond, Max: time.Second}
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause.Reset()
			if s.add(conn) {
				go func() {
					defer s.remove(conn)
					serve(conn)
				}()
			}
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
			if pause.Wait(s.life) != nil {
				return nil
			}
		case s.life.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		default:
			return err
		}
	}
}

func (s *Set) add(conn net.Conn) bool {
	s.mu.Lock()
	full := s.opts.Limit > 0 && len(s.conns) >= s.opts.Limit
	if !s.closed && !full {
		s.conns[conn] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		return true
	}
	refused := !s.closed && s.opts.Refused != nil
	s.mu.Unlock()
	if refused {
		s.opts.Refused(conn)
	}
	conn.Close()
	return false
}

func (s *Set) remove(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	s.wg.Done()
}

// Len returns the number of open connections.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close closes everything, as CloseAll does, and waits until all connections have been served. It is idempotent.
func (s *Set) Close() error {
	err := s.CloseAll()
	s.wg.Wait()
	return err
}

// CloseAll closes the listeners and all connections, and refuses new ones. It does not wait for the handlers.
func (s *Set) CloseAll() error {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	listeners, conns := slices.Collect(maps.Keys(s.listeners)), slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	var errs error
	for _, l := range listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = errors.Join(errs, err)
		}
	}
	for _, conn := range conns {
		conn.Close()
	}
	return errs
}
