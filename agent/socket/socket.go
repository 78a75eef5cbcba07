// Package socket serves a listener of the agent's own, for programs of the workspace: so many at once, and none after Close.
package socket

import (
	"net"
	"sync"
)

// Server serves connections until Close.
type Server struct {
	listener net.Listener
	most     int
	handle   func(net.Conn)

	mu     sync.Mutex // guards conns and closed
	conns  map[net.Conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

// Serve begins to serve l, which it closes in the end. At most most connections are open; those above are closed. handle serves one,
// which is closed when it returns, and must return when it is closed.
func Serve(l net.Listener, most int, handle func(net.Conn)) *Server {
	s := &Server{listener: l, most: most, handle: handle, conns: make(map[net.Conn]struct{})}
	s.wg.Go(s.accept)
	return s
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		if !s.begin(conn) {
			conn.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.end(conn)
			s.handle(conn)
		})
	}
}

func (s *Server) begin(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.most {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *Server) end(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// Close closes the listener and all connections, and waits for their handlers. It is safe to call again.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	return err
}
